"""The sequences that document 3 fixes: what in them came out of order or does not fit (contract 7).

Events come in any order, so none is refused. One whose reference is not there has the flag
`reference_missing`, and `out_of_order` once the reference has come after it; it is the one flagged,
never the reference. What does not fit its reference has `currency_mismatch`, `value_mismatch` or
`exceeds_max`. Amounts are equal if they differ by no more than computing in doubles makes them.

    bonus_offered <- bonus_claimed <- bonus_completed <- bonus_cashed_out (also <- bonus_claimed)
    deposit_initiated <- deposit, deposit_failed
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import asyncpg

from snapbid.warehouse import events
from snapbid.warehouse.events import Key, Member, Row

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
"""Event -> those that must have come before it."""

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
    """An event of one sequence; numbers in the context are Decimal."""

    event_id: str
    event: str
    arrival: int
    context: Mapping[str, Any]


def flags(steps: Sequence[Step]) -> dict[str, list[str]]:
    """The flags of every event of one sequence, in the order of `FLAGS`."""
    first: dict[str, Step] = {}
    for step in sorted(steps, key=lambda step: step.arrival):
        first.setdefault(step.event, step)
    found = {}
    for step in steps:
        names = _order(step, first) | _misfits(step, first)
        found[step.event_id] = [flag for flag in FLAGS if flag in names]
    return found


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
    """What differs from the offer, or else from the claim."""
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
        fits = _equal(*(_number(each, "wagering_requirement") for each in (own, other)))
    else:
        granted = _number(other, "bonus_value_granted")
        fits = _equal(_number(own, "original_bonus_value"), granted)
    return names if fits else names | {"value_mismatch"}


def _number(context: Mapping[str, Any], name: str) -> Decimal:
    value = context.get(name)
    return value if isinstance(value, Decimal) else Decimal(0)  # of a row made by hand


def _equal(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))


# -- in the warehouse -----------------------------------------------------------------------------


async def check(connection: asyncpg.Connection, new: Sequence[Row]) -> None:
    """Set the flags of new events, and of those that came before them and refer to them."""
    bonuses: dict[Key, bool] = {}
    deposits: set[Key] = set()
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


def _compare(changed: dict[str, list[str]], sequences: Mapping[Key, Sequence[Member]]) -> None:
    for members in sequences.values():
        found = flags(
            [
                Step(member.event_id, member.event, member.arrival, _decode(member.context))
                for member in members
            ]
        )
        changed |= {
            member.event_id: found[member.event_id]
            for member in members
            if found[member.event_id] != member.flags
        }


def _decode(context: str) -> Any:
    return json.loads(context, parse_float=Decimal, parse_int=Decimal)
