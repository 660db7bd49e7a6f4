"""Audiences: persons selected by their server events, as defined by an operator (contract 12)."""

from collections.abc import Collection
from typing import Any, Final

import msgspec

from snapbid.campaigns.campaign import CampaignError
from snapbid.campaigns.rules import Check, Mistakes, Path, list_of, object_of, report
from snapbid.campaigns.value_rules import BUDGET, check_product, choice, integer

MAX_DAYS: Final = 366
MAX_COUNT: Final = 100  # events of a person whose times are kept
MAX_AUDIENCES: Final = 1_000  # in a file


class Audience(msgspec.Struct, frozen=True, omit_defaults=True):
    """Persons with at least `at_least` events of a type and product in the last `within_days` days.

    If `min_amount_usd` is set, only events with at least this amount (micro-USD) count.
    """

    id: str
    product: str
    event: str
    within_days: int
    at_least: int = 1
    min_amount_usd: int | None = None


def rule_of(events: Collection[str], with_amounts: Collection[str]) -> Check:
    """Build the check for a list of audiences.

    `events`: the names of all events; `with_amounts`: the names of those that have an amount.
    """

    def has_an_amount(audience: Any, at: Path, mistakes: Mistakes) -> None:
        if audience.min_amount_usd is None or audience.event in with_amounts:
            return
        if audience.event in events:
            report(mistakes, (at, "min_amount_usd"), f"{audience.event} has no amount")

    one = object_of(
        {
            "id": check_product,
            "product": check_product,
            "event": choice(*events),
            "within_days": integer(1, MAX_DAYS),
            "at_least": integer(1, MAX_COUNT),
            "min_amount_usd": BUDGET,
        },
        Audience,
        required=("id", "product", "event", "within_days"),
        together=has_an_amount,
    )
    return list_of(one, MAX_AUDIENCES, distinct=False, unique="id")


def parse(document: object, check: Check) -> tuple[Audience, ...]:
    """Check an audience or a list of them, decoded from JSON, with the check from `rule_of`.

    Raises CampaignError, which lists all mistakes.
    """
    mistakes = Mistakes()
    audiences = check(document if isinstance(document, list) else [document], (), mistakes)
    if mistakes:
        raise CampaignError(tuple(mistakes))
    return tuple(audiences)
