"""Test mode: events are validated and enriched, and nothing is kept (document 3; contract 7)."""

from collections.abc import Callable
from typing import Any, NamedTuple

from snapbid.events import answers
from snapbid.events.enrich import Enriched, Quotes, enrich
from snapbid.events.outcomes import Batch, Finding, Single
from snapbid.events.slices import Slices
from snapbid.events.validate import findings_of
from snapbid.reference.agents import Agent
from snapbid.reference.geo import Place


class Enricher(NamedTuple):
    """The sources of an event's place, device and money."""

    place_of: Callable[[str], Place | None]
    agent_of: Callable[[str], Agent]
    rates: Quotes

    def enrich(self, document: dict[str, Any]) -> Enriched:
        return enrich(document, self.place_of, self.agent_of, self.rates)


def single(read: Single, enricher: Enricher) -> dict[str, Any]:
    """The answer to one valid event."""
    enriched = enricher.enrich(read.event.document)
    warnings = read.warnings + findings_of(read.event.event, enriched.warnings)
    return answers.tested(read.event, enriched.document, warnings)


async def batch(read: Batch, enricher: Enricher, slices: Slices) -> dict[str, Any]:
    """The answer to a batch, whose events are enriched for the warnings alone."""
    warnings = list(read.warnings)
    for place, event in zip(read.places, read.accepted, strict=True):
        document = event.document
        for source in ("ip_address", "user_agent"):  # what they tell is not asked for
            document["context"].pop(source, None)
        found = enricher.enrich(document).warnings
        warnings.extend(findings_of(event.event, found, place))
        await slices.pause()
    warnings.sort(key=_place)
    return answers.tested_batch(read, warnings)


def _place(warning: Finding) -> int:
    return warning.index if isinstance(warning.index, int) else -1
