"""The types of the catalog: events, their fields, and the requirement level of each field."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct

from snapbid.campaigns.suppression import Identifies

CORE: Final = "general.core"
IGAMING: Final = "igaming"

MAX_TEXT: Final = 1024
MIN_MS: Final = 10**12
MAX_MS: Final = 10**13 - 1
"""Bounds of times, which have 13 digits: 2001-09-09 to 2286-11-20."""

MAX_EXACT: Final = 2**53
"""Whole numbers of the catalog up to this limit are integers; beyond, they are doubles."""

Unit = Literal["ms", "minutes", "days"]


class Kind(StrEnum):
    """The kind of a value, which determines its JSON type and how it is checked."""

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
    """The requirement level of a field (document 3, base properties)."""

    REQUIRED = "R"
    SUGGESTED = "S"
    OPTIONAL = "O"


class Field(Struct, frozen=True, kw_only=True):
    """A field of an event; `path`: its full path, such as `context.privacy.email_hash`.

    `values`: the accepted spellings of a choice. `stored` maps aliases to the spelling that is
    stored. Spellings in `deprecated` are accepted with a warning. `identifies`: whom the value
    identifies, so that persons can be forgotten.
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
    identifies: Identifies | None = None
    note: str = ""

    @property
    def stored_forms(self) -> dict[str, str]:
        """Map each accepted spelling of a choice to its stored spelling."""
        return {value: self.stored.get(value, value) for value in self.values}

    @property
    def parent(self) -> str:
        """The path of the object that contains the field, such as `context.privacy`."""
        return self.path.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """The last part of the path, which is also the key of an amount in `enrichment`."""
        return self.path.rpartition(".")[2]


class Event(Struct, frozen=True, kw_only=True):
    """An event of the catalog.

    `fields`: the event's own fields, without the base properties. App `lifecycle` events need only
    one of the two user ids. `key`: the context field that identifies the event for deduplication.
    `required_with` maps a field to the fields that require it. `value`: the field with the amount
    that the event is worth as a conversion; `cost`: a field whose amount counts as negative;
    `free`: the field that, if true, makes the event worth nothing. `result`: the field that says
    whether `cost` is a `win` or a `loss`.
    """

    name: str
    preset: str
    summary: str
    fields: tuple[Field, ...] = ()
    lifecycle: bool = False
    ip: Level = Level.REQUIRED
    key: str | None = None
    required_with: Mapping[str, tuple[str, ...]] = {}
    value: str | None = None
    cost: str | None = None
    free: str | None = None
    result: str | None = None

    def identity_fields(self) -> tuple[Field, ...]:
        """Return the fields of `identity`, with this event's requirement levels."""
        user = Level.SUGGESTED if self.lifecycle else Level.REQUIRED
        return (
            _text(
                "identity.client_user_id", user, "unique user id in the partner's system", "user"
            ),
            _text(
                "identity.anonymous_id", Level.OPTIONAL, "anonymous id before registration", "user"
            ),
            _text("identity.click_id", Level.SUGGESTED, "ad click id for attribution", "person"),
        )

    def context_fields(self) -> tuple[Field, ...]:
        """Return the fields of `context`: the IP address, the event's own fields, and hashes.

        The hashes are PRIVACY_HASHES, except those that are among the event's own fields.
        """
        own = {field.path for field in self.fields}
        ip = Field(
            path="context.ip_address", kind=Kind.IP, level=self.ip, note="the end user's address"
        )
        hashes = (field for field in PRIVACY_HASHES if field.path not in own)
        return (ip, *self.fields, *hashes)

    def context_objects(self) -> dict[str, list[Field]]:
        """Group the context fields by object: `context`, or the key of an object within it."""
        objects: dict[str, list[Field]] = {}
        for field in self.context_fields():
            objects.setdefault(field.parent.rpartition(".")[2], []).append(field)
        return objects


def _text(path: str, level: Level, note: str, identifies: Identifies) -> Field:
    return Field(path=path, kind=Kind.TEXT, level=level, note=note, identifies=identifies)


# Personal data is sent as hashes under `context.privacy`, with any event (document 3, envelope).
PRIVACY_HASHES: Final = tuple(
    Field(
        path=f"context.privacy.{name}_hash",
        kind=Kind.HASH,
        level=Level.OPTIONAL,
        identifies="person",
        note=f"SHA-256 of the {name}, 64 hexadecimal digits",
    )
    for name in ("email", "phone")
)
