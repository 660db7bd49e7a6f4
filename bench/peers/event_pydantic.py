"""Checks events with pydantic v2: strict models in a union discriminated by `event`.

Checks that pydantic's core lacks (codes and hashes) are validators in Python, as one would write
them. Duplicate keys are not noticed.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic import Field as Column

from snapbid.events.catalog import EVENTS
from snapbid.events.fields import MAX_MS, MAX_TEXT, MIN_MS, Event, Field, Kind, Level
from snapbid.events.values import EMPTY_HASH, calling_code, country_code, currency_code, is_ip

_HASH: Final = re.compile("[0-9a-fA-F]{64}")
_BASE: Final = ConfigDict(strict=True, extra="allow")


def _found(find: Callable[[str], str | None]) -> AfterValidator:
    def check(value: str) -> str:
        stored = find(value)
        if stored is None:
            raise ValueError("unknown code")
        return stored

    return AfterValidator(check)


def _digest(value: str) -> str:
    lower = value.lower()
    if not _HASH.fullmatch(lower) or lower == EMPTY_HASH:
        raise ValueError("no SHA-256")
    return lower


def _address(value: str) -> str:
    if not is_ip(value):
        raise ValueError("no address")
    return value


class _Money(BaseModel):
    """The base of contexts with a currency."""

    model_config = _BASE
    currency: str | None = None
    is_crypto: bool | None = None

    def model_post_init(self, _: Any) -> None:
        if self.currency is not None:
            code = currency_code(self.currency, crypto=self.is_crypto is True)
            if code is None:
                raise ValueError("no currency")
            self.currency = code


class _Plain(BaseModel):
    model_config = _BASE


_Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT)]
_Time = Annotated[int, Column(ge=MIN_MS, le=MAX_MS)]
_TYPES: Final[dict[Kind, Any]] = {
    Kind.TEXT: _Text,
    Kind.FLAG: bool,
    Kind.TIME: _Time,
    Kind.HASH: Annotated[str, AfterValidator(_digest)],
    Kind.IP: Annotated[str, AfterValidator(_address)],
    Kind.COUNTRY: Annotated[str, _found(country_code)],
    Kind.CALLING_CODE: Annotated[str, _found(calling_code)],
    Kind.CURRENCY: str,
}


def _type_of(field: Field) -> Any:
    if field.kind is Kind.CHOICE:
        if not field.stored:
            return Literal[field.values]
        stored = {value: field.stored.get(value, value) for value in field.values}
        return Annotated[str, _found(stored.get)]
    if field.kind is Kind.NUMBER:
        return float if field.signed else Annotated[float, Column(ge=0)]
    return _TYPES[field.kind]


def _columns(fields: list[Field]) -> dict[str, Any]:
    return {
        field.leaf: (_type_of(field), ...)
        if field.level is Level.REQUIRED
        else (_type_of(field) | None, None)
        for field in fields
    }


def _model(event: Event) -> type[BaseModel]:
    groups: dict[str, list[Field]] = {}
    for field in event.context_fields():
        groups.setdefault(field.parent, []).append(field)
    columns = _columns(groups.pop("context"))
    for parent, fields in groups.items():
        leaf = parent.removeprefix("context.")
        inner = create_model(f"{event.name}_{leaf}", __base__=_Plain, **_columns(fields))
        columns[leaf] = (inner | None, None)
    base = _Money if "currency" in columns else _Plain
    context = create_model(f"{event.name}_context", __base__=base, **columns)
    users = _columns(list(event.identity_fields()))
    identity = create_model(f"{event.name}_identity", __base__=_Plain, **users)
    parts: dict[str, Any] = {
        "event": (Literal[event.name], ...),
        "timestamp": (_Time, ...),
        "identity": (identity, ...),
        "context": (context, ...),
    }
    return create_model(event.name, __base__=_Plain, **parts)


def _union() -> Any:
    union: Any = None
    for event in EVENTS.values():
        union = _model(event) if union is None else union | _model(event)
    return Annotated[union, Column(discriminator="event")]


_BATCH: Final[TypeAdapter[list[Any]]] = TypeAdapter(list[_union()])


def violations(body: bytes) -> list[tuple[Any, ...]]:
    """Return (index, path, rule) of all errors in a batch."""
    try:
        _BATCH.validate_json(body)
    except ValidationError as refused:
        return [(*error["loc"], error["type"]) for error in refused.errors()]
    return []


def stored(body: bytes) -> list[tuple[str, str]]:
    """Return (id, JSON) of each event of a valid batch; the product makes these, too."""
    made = []
    for event in _BATCH.validate_json(body):
        text = event.model_dump_json(exclude_none=True)
        own = event.context
        key = getattr(own, "transaction_id", None) or getattr(own, "bonus_id", None) or text
        made.append((sha256(f"demo\0{event.event}\0{key}".encode()).hexdigest()[:32], text))
    return made
