"""What the catalog is made of: events, their fields, and how strictly each is asked for."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

CORE: Final = "general.core"
IGAMING: Final = "igaming"
PRESETS: Final = (CORE, IGAMING)

MAX_TEXT: Final = 1024
MIN_MS: Final = 10**12
MAX_MS: Final = 10**13 - 1
"""Times have 13 digits: 2001-09-09 to 2286-11-20."""

Unit = Literal["ms", "minutes", "days"]


class Kind(StrEnum):
    """How a value is read; the JSON type follows from it."""

    TEXT = "text"
    CHOICE = "choice"
    NUMBER = "number"
    FLAG = "flag"
    TIME = "time"
    HASH = "hash"
    IP = "ip"
    CURRENCY = "currency"
    COUNTRY = "country"
    CALLING_CODE = "calling_code"


JSON_TYPES: Final[dict[Kind, str]] = dict.fromkeys(Kind, "string") | {
    Kind.NUMBER: "number",
    Kind.FLAG: "boolean",
    Kind.TIME: "number",
}


class Level(StrEnum):
    """Requirement level (document 3, base properties)."""

    REQUIRED = "R"
    SUGGESTED = "S"
    OPTIONAL = "O"


class Field(Struct, frozen=True, kw_only=True):
    """One field of an event; `path` is the whole one, `context.privacy.email_hash`.

    `values` are the spellings of a choice that are accepted, `stored` maps those that are not
    stored as they come to what is stored, `deprecated` are accepted with a warning.
    """

    path: str
    kind: Kind
    level: Level
    values: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    stored: Mapping[str, str] = {}
    signed: bool = False
    monetary: bool = False
    unit: Unit | None = None
    note: str = ""

    @property
    def parent(self) -> str:
        """`context` or `context.privacy`."""
        return self.path.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """The last part of the path, under which amounts are enriched."""
        return self.path.rpartition(".")[2]


class Event(Struct, frozen=True, kw_only=True):
    """One event of the catalog; `fields` are its own, without the base properties.

    `lifecycle` events need one of the two user ids only; `key` is the context field that
    identifies the event for deduplication; `required_with` maps a field to those that need it.
    """

    name: str
    preset: str
    summary: str
    fields: tuple[Field, ...] = ()
    lifecycle: bool = False
    ip: Level = Level.REQUIRED
    key: str | None = None
    required_with: Mapping[str, tuple[str, ...]] = {}

    def identity_fields(self) -> tuple[Field, ...]:
        """The fields of `identity`, with this event's levels."""
        user = Level.SUGGESTED if self.lifecycle else Level.REQUIRED
        return (
            _text("identity.client_user_id", user, "unique user id in the partner's system"),
            _text("identity.anonymous_id", Level.OPTIONAL, "anonymous id before registration"),
            _text("identity.click_id", Level.SUGGESTED, "ad click id for attribution"),
        )

    def context_fields(self) -> tuple[Field, ...]:
        """The fields of `context`: base properties, the event's own, hashes for any event."""
        own = {field.path for field in self.fields}
        ip = Field(
            path="context.ip_address", kind=Kind.IP, level=self.ip, note="the end user's address"
        )
        hashes = (one for one in PRIVACY_HASHES if one.path not in own)
        return (ip, *self.fields, *hashes)


def _text(path: str, level: Level, note: str) -> Field:
    return Field(path=path, kind=Kind.TEXT, level=level, note=note)


# Personal data is sent as hashes under `context.privacy`, with any event (document 3, envelope).
PRIVACY_HASHES: Final = tuple(
    Field(
        path=f"context.privacy.{name}_hash",
        kind=Kind.HASH,
        level=Level.OPTIONAL,
        note=f"SHA-256 of the {name}, 64 hexadecimal digits",
    )
    for name in ("email", "phone")
)
