"""Flag events that are out of order, or inconsistent with their sequence (document 3; contract 7).

Events arrive in any order, so none is refused. An event without its reference (left of `<-` below)
is flagged `reference_missing`; if the reference arrives later, the flag becomes `out_of_order`. The
reference itself is not flagged for this. An event that contradicts its reference is flagged
`currency_mismatch`, `value_mismatch` or `exceeds_max`. Amounts are compared to within the rounding
errors of doubles.

    bonus_offered <- bonus_claimed <- bonus_completed <- bonus_cashed_out (also <- bonus_claimed)
    deposit_initiated <- deposit, deposit_failed

A bonus or deposit has one event of each name, except for any number of cash-outs. Cash-outs are
flagged on arrival, and again if a claim or completion arrives after them: page by page, each page
in a separate transaction. At most `MEMBERS` cash-outs of a bonus are flagged again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, Final, NamedTuple

import asyncpg

from snapbid.warehouse import events, persons
from snapbid.warehouse.events import EventRow

OFFERED: Final = "bonus_offered"
CLAIMED: Final = "bonus_claimed"
COMPLETED: Final = "bonus_completed"
CASHED_OUT: Final = "bonus_cashed_out"
INITIATED: Final = "deposit_initiated"

REFERENCES: Final[dict[str, tuple[str, ...]]] = {
    CLAIMED: (OFFERED,),
    COMPLETED: (CLAIMED,),
    CASHED_OUT: (COMPLETED, CLAIMED),
    "deposit": (INITIATED,),
    "deposit_failed": (INITIATED,),
}
"""The events that must precede each event."""

FLAGS: Final[tuple[str, ...]] = (
    "reference_missing",
    "out_of_order",
    "currency_mismatch",
    "value_mismatch",
    "exceeds_max",
)
_BONUS: Final = (OFFERED, CLAIMED, COMPLETED, CASHED_OUT)
_DEPOSIT: Final = (INITIATED, "deposit", "deposit_failed")
_IDS: Final = dict.fromkeys(_BONUS, "bonus_id") | dict.fromkeys(_DEPOSIT, "transaction_id")
MEMBERS: Final = 100_000  # cash-outs of a bonus that are flagged again
AT_ONCE: Final = 100  # bonuses in a page

_TOLERANCE: Final = Decimal("1e-9")  # relative


class Step(NamedTuple):
    """An event of a sequence; the numbers in `context` are Decimal."""

    event_id: str
    event: str
    arrival: int
    context: Mapping[str, Any]


def flags(steps: Sequence[Step]) -> dict[str, list[str]]:
    """Return the flags of each event of a sequence, in the order of `FLAGS`."""
    first: dict[str, Step] = {}
    for step in sorted(steps, key=lambda step: step.arrival):
        first.setdefault(step.event, step)
    flags_of = {}
    for step in steps:
        names = _order(step, first) | _misfits(step, first)
        flags_of[step.event_id] = [flag for flag in FLAGS if flag in names]
    return flags_of


def _order(step: Step, first: Mapping[str, Step]) -> set[str]:
    names = set()
    for name in REFERENCES.get(step.event, ()):
        reference = first.get(name)
        if reference is None:
            names.add("reference_missing")
        elif reference.arrival > step.arrival:
            names.add("out_of_order")
    return names


def _misfits(step: Step, first: Mapping[str, Step]) -> set[str]:
    """Return the flags of a bonus event that contradicts its reference.

    The reference of a claim is its offer; that of a completion or a cash-out is the claim.
    """
    reference = first.get(OFFERED if step.event == CLAIMED else CLAIMED)
    if reference is None or step.event not in (CLAIMED, COMPLETED, CASHED_OUT):
        return set()
    own, other = step.context, reference.context
    names = set()
    if own.get("currency") != other.get("currency"):
        names.add("currency_mismatch")
    if step.event == CLAIMED:
        granted = _number(own, "bonus_value_granted")
        if granted > _number(other, "bonus_value_max"):
            names.add("exceeds_max")
        wanted = granted * _number(other, "wagering_multiplier")
        fits = _equal(_number(own, "wagering_requirement"), wanted)
    elif step.event == COMPLETED:
        requirement = _number(other, "wagering_requirement")
        fits = _equal(_number(own, "wagering_requirement"), requirement)
    else:
        granted = _number(other, "bonus_value_granted")
        fits = _equal(_number(own, "original_bonus_value"), granted)
    return names if fits else names | {"value_mismatch"}


def _number(context: Mapping[str, Any], name: str) -> Decimal:
    value = context.get(name)
    return value if isinstance(value, Decimal) else Decimal(0)  # in a row inserted by hand


def _equal(a: Decimal, b: Decimal) -> bool:
    return abs(a - b) <= _TOLERANCE * max(abs(a), abs(b))


# -- in the warehouse -----------------------------------------------------------------------------


def digest(product: str, event: str, context: Mapping[str, Any]) -> bytes | None:
    """Return the key of an event's sequence; None if the event belongs to no sequence.

    The cash-outs of a bonus form a sequence of their own, since a bonus may have many.
    """
    if event not in _IDS:
        return None
    kind = "cashout" if event == CASHED_OUT else "bonus" if event in _BONUS else "deposit"
    return _digest(kind, product, context.get(_IDS[event]))


def _digest(kind: str, product: str, id: object) -> bytes:
    return sha256(f"{kind} {product} {id}".encode()).digest()[:16]


async def check(connection: asyncpg.Connection, new: Sequence[EventRow]) -> None:
    """Set the flags of new events, and of the few earlier events that refer to them.

    Many cash-outs may have arrived before their claim or completion; these are left to `revise`.
    """
    own: set[bytes] = set()
    cashed_out: list[str] = []
    bonus_of: dict[bytes, bytes] = {}  # by the sequence of cash-outs to revise
    for row in new:
        if row.sequence is None:
            continue
        if row.event not in _BONUS:
            own.add(row.sequence)
            continue
        id = _decode(row.context).get("bonus_id")
        bonus = _digest("bonus", row.product, id)
        own.add(bonus)
        if row.event == CASHED_OUT:
            cashed_out.append(row.event_id)
        elif row.event in REFERENCES[CASHED_OUT]:
            bonus_of[_digest("cashout", row.product, id)] = bonus
    if own:
        await _flag(connection, own, cashed_out)
        await events.revise_later(connection, bonus_of)


async def revise(connection: asyncpg.Connection, rows: int, statement_s: float) -> int:
    """Recompute the sequence flags of up to `rows` stored cash-outs, in one transaction.

    Returns the number of bonuses to which these cash-outs belong. No statement may run longer than
    `statement_s`.
    """
    async with connection.transaction():
        await persons.hold_erasure(connection)
        await events.limit_statements(connection, statement_s)
        revisions = await events.fetch_revisions(connection, min(rows, AT_ONCE), rows)
        cashed_out = [id for revision in revisions for id in revision.event_ids]
        await _flag(connection, {revision.bonus for revision in revisions}, cashed_out)
        await events.note_revised(connection, revisions, MEMBERS)
    return len(revisions)


async def skip(connection: asyncpg.Connection) -> None:
    """Give up on the next cash-out that is to be flagged again; it keeps its flags."""
    async with connection.transaction():
        due = await events.fetch_revisions(connection, 1, 1)
        await events.note_revised(connection, due, MEMBERS)


async def _flag(
    connection: asyncpg.Connection, sequences: Iterable[bytes], cashed_out: Iterable[str]
) -> None:
    """Recompute the flags of the events in `sequences`, and of cash-outs by id (`cashed_out`)."""
    steps: dict[tuple[str, str, object], list[Step]] = {}
    members = {}
    for member in await events.fetch_members(connection, sequences, cashed_out):
        members[member.event_id] = member
        context = _decode(member.context)
        if (id := context.get(_IDS[member.event])) is not None:  # else its person was forgotten
            step = Step(member.event_id, member.event, member.arrival, context)
            steps.setdefault((member.product, _IDS[member.event], id), []).append(step)
    changed = [
        (members[event_id], names)
        for sequence in steps.values()
        for event_id, names in flags(sequence).items()
        if names != members[event_id].flags
    ]
    if changed:
        await events.set_flags(connection, changed)


def _decode(context: str) -> Any:
    return json.loads(context, parse_float=Decimal, parse_int=Decimal)
