"""What reading a body comes to; the endpoint maps these to HTTP, `answers` to documents."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from snapbid.events.fields import CORE

VALIDATION_ERROR: Final = "VALIDATION_ERROR"
UNKNOWN_EVENT_TYPE: Final = "UNKNOWN_EVENT_TYPE"
EVENT_DISABLED: Final = "EVENT_DISABLED"
BATCH_TOO_LARGE: Final = "BATCH_TOO_LARGE"

STATUSES: Final = {
    VALIDATION_ERROR: 400,
    BATCH_TOO_LARGE: 400,
    UNKNOWN_EVENT_TYPE: 422,
    EVENT_DISABLED: 422,
}


class Product(Struct, frozen=True):
    """Whose key it is, and which presets that product has; `general.core` is always among them."""

    name: str
    presets: frozenset[str] = frozenset({CORE})


class Finding(Struct, frozen=True, gc=False, omit_defaults=True):
    """A violation, or a warning: the path of the field, the rule, the event if in the catalog.

    In a batch `index` is the event's place, and `field` starts with it: `[3].context.amount`.
    """

    field: str
    rule: str
    event: str | None
    index: int | msgspec.UnsetType = msgspec.UNSET


class Accepted(Struct, frozen=True, gc=False):
    """A valid event, normalised. `envelope` is the canonical JSON, what is to be stored."""

    event: str
    event_id: str
    occurred_at_ms: int
    client_user_id: str | None
    anonymous_id: str | None
    click_id: str | None
    envelope: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The envelope decoded: `event`, `timestamp`, `identity`, `context`."""
        made: dict[str, Any] = msgspec.json.decode(self.envelope)
        return made


class Refusal(Struct, frozen=True):
    """The request is refused: `STATUSES[code]`, and what is wrong. Quotes no value."""

    code: str
    message: str
    violations: list[Finding]

    @property
    def status(self) -> int:
        return STATUSES[self.code]


class Single(Struct, frozen=True):
    """One valid event, and in test mode the warnings."""

    event: Accepted
    warnings: list[Finding]


class Failed(Struct, frozen=True):
    """An event of a batch that is not accepted."""

    index: int
    code: str
    event: str | None
    violations: list[Finding]


class Batch(Struct, frozen=True):
    """What was good in a batch, with its places, and what was not (lenient and test mode only)."""

    accepted: list[Accepted]
    places: list[int]
    failed: list[Failed]
    warnings: list[Finding]


def code_of(findings: list[Finding]) -> str:
    """Which code these violations make: a wrong field before an unknown event, before a disabled.

    (contract 7, which code)
    """
    rules = {finding.rule for finding in findings}
    if rules - {"unknown_event", "event_disabled"}:
        return VALIDATION_ERROR
    return UNKNOWN_EVENT_TYPE if "unknown_event" in rules else EVENT_DISABLED
