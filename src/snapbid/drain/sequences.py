"""The event sequences of document 3: events out of order or inconsistent (contract 7).

Events arrive in any order, so none is refused. An event without its reference is flagged
`reference_missing`, and `out_of_order` once the reference has arrived after it; the reference
itself is never flagged. An event that contradicts its reference is flagged `currency_mismatch`,
`value_mismatch` or `exceeds_max`. Amounts are equal up to the rounding errors of doubles.

    bonus_offered <- bonus_claimed <- bonus_completed <- bonus_cashed_out (also <- bonus_claimed)
    deposit_initiated <- deposit, deposit_failed
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import asyncpg

from snapbid.warehouse import events
from snapbid.warehouse.events import EventRow, SequenceKey, SequenceMember

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
"""Event -> the events that must precede it."""

FLAGS: Final[tuple[str, ...]] = (
    "reference_missing",
    "out_of_order",
    "currency_mismatch",
    "value_mismatch",
    "exceeds_max",
)
_BONUS: Final = (OFFERED, CLAIMED, COMPLETED, CASHED_OUT)
_DEPOSIT: Final = (INITIATED, "deposit", "deposit_failed")
_TOLERANCE: Final = Decimal("1e-9")  # relative


class Step(NamedTuple):
    """An event of a sequence; numbers in the context are Decimal."""

    event_id: str
    event: str
    arrival: int
    context: Mapping[str, Any]


def flags(steps: Sequence[Step]) -> dict[str, list[str]]:
    """The flags of every event of a sequence, in the order of `FLAGS`."""
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
    """How the event contradicts its offer or, later in the sequence, its claim."""
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
    return value if isinstance(value, Decimal) else Decimal(0)  # of a row inserted by hand


def _equal(a: Decimal, b: Decimal) -> bool:
    return abs(a - b) <= _TOLERANCE * max(abs(a), abs(b))


# -- in the warehouse -----------------------------------------------------------------------------


async def check(connection: asyncpg.Connection, new: Sequence[EventRow]) -> None:
    """Set the flags of new events, and of earlier events that refer to them."""
    bonuses: dict[SequenceKey, bool] = {}
    deposits: set[SequenceKey] = set()
    cashed_out = []
    for row in new:
        if row.event in _BONUS:
            key = (row.product, str(_decode(row.context)["bonus_id"]))
            bonuses[key] = bonuses.get(key, False) or row.event != CASHED_OUT
            if row.event == CASHED_OUT:
                cashed_out.append(row.event_id)
        elif row.event in _DEPOSIT:
            deposits.add((row.product, str(_decode(row.context)["transaction_id"])))
    changed: dict[str, list[str]] = {}
    if bonuses:
        _compare(changed, await events.fetch_bonuses(connection, bonuses, cashed_out))
    if deposits:
        _compare(changed, await events.fetch_deposits(connection, deposits))
    if changed:
        await events.set_flags(connection, changed)


def _compare(
    changed: dict[str, list[str]], sequences: Mapping[SequenceKey, Sequence[SequenceMember]]
) -> None:
    for members in sequences.values():
        flags_of = flags(
            [
                Step(member.event_id, member.event, member.arrival, _decode(member.context))
                for member in members
            ]
        )
        changed |= {
            member.event_id: flags_of[member.event_id]
            for member in members
            if flags_of[member.event_id] != member.flags
        }


def _decode(context: str) -> Any:
    return json.loads(context, parse_float=Decimal, parse_int=Decimal)
