"""The thorough path: finds every violation and warning in an event, and normalises it.

This path defines validity: `fast` takes only events that this path accepts, and builds the same
canonical envelopes. Violations are in the order event, timestamp, identity, context; within an
object, the catalog's fields come first in catalog order, then unknown fields in the order received.
"""

import math
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from snapbid.events import personal, values
from snapbid.events.catalog import EVENTS
from snapbid.events.fields import PRIVACY_HASHES, Event, Field, Level
from snapbid.events.outcomes import AcceptedEvent, accepted, canonical_envelope

MOST_UNKNOWN: Final = 50  # findings on an event's fields outside the catalog
TOO_LARGE: Final = object()
"""The document of an event that is too large to be read."""


class FieldReader(NamedTuple):
    """A field of the event catalog, and the reader of its values."""

    leaf: str
    path: str
    read: values.Reader
    is_required: bool
    is_suggested: bool
    deprecated: tuple[str, ...]


class FieldGroup(NamedTuple):
    """The readers of an object's fields, and all keys that are known in the object."""

    fields: tuple[FieldReader, ...]
    keys: frozenset[str]


class EventFields(NamedTuple):
    """The fields of an event; `inner`: the fields of each object in the context, by its key."""

    identity: FieldGroup
    context: FieldGroup
    inner: dict[str, FieldGroup]


_ENVELOPE_KEYS: Final = frozenset({"event", "timestamp", "identity", "context"})
_PRIVACY: Final = "context.privacy"
_PRINTABLE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_REDACTED_KEY: Final = "*"


def _reader(field: Field) -> FieldReader:
    is_required, is_suggested = field.level is Level.REQUIRED, field.level is Level.SUGGESTED
    read = values.reader_of(field)
    return FieldReader(field.leaf, field.path, read, is_required, is_suggested, field.deprecated)


def _group(fields: Iterable[Field], objects: Iterable[str] = ()) -> FieldGroup:
    readers = tuple(map(_reader, fields))
    return FieldGroup(readers, frozenset({*objects, *(reader.leaf for reader in readers)}))


def _fields_of(event: Event) -> EventFields:
    objects = event.context_objects()
    own = objects.pop("context")
    inner = {key: _group(fields) for key, fields in objects.items()}
    return EventFields(_group(event.identity_fields()), _group(own, inner), inner)


_FIELDS: Final = {name: _fields_of(event) for name, event in EVENTS.items()}

# An event outside the catalog is checked for the base properties, if present.
_UNKNOWN: Final = Event(
    name="", preset="", summary="", lifecycle=True, ip=Level.OPTIONAL
)  # fmt: skip
_FIELDS_OF_UNKNOWN: Final = _fields_of(_UNKNOWN)


class Examination:
    """An event read field by field; `violations` and `warnings` are (field, rule) pairs.

    An event can have any number of unknown fields; each list names at most MOST_UNKNOWN of them.
    """

    def __init__(self, document: Any, presets: frozenset[str], latest_ms: int) -> None:
        self._left_to_violate = self._left_to_warn = MOST_UNKNOWN
        self.violations: list[tuple[str, str]] = []
        self.warnings: list[tuple[str, str]] = []
        self.event: Event | None = None
        self.timestamp = 0
        self.identity: dict[str, Any] = {}
        self.context: dict[str, Any] = {}
        if not isinstance(document, dict):
            self._violate("", "max_size" if document is TOO_LARGE else "not_object")
            return
        self._name(document.get("event"), presets)
        self._timestamp(document.get("timestamp"), latest_ms)
        event = self.event or _UNKNOWN
        fields = _FIELDS.get(event.name, _FIELDS_OF_UNKNOWN)
        self._identity(document.get("identity"), event, fields)
        self._context(document.get("context"), event, fields)
        self._unknown("", document, _ENVELOPE_KEYS)

    @property
    def name(self) -> str | None:
        """The event's name; None if it is not in the catalog."""
        return self.event.name if self.event is not None else None

    def accept(self, product: bytes) -> AcceptedEvent:
        """Return the event, which must have no violations, in its normalised form."""
        event, identity, context = self.event, self.identity, self.context
        assert event is not None
        assert not self.violations
        ids = identity.get("client_user_id"), identity.get("anonymous_id"), identity.get("click_id")
        envelope = canonical_envelope(event.name, self.timestamp, identity, context)
        key = context[event.key] if event.key is not None else None
        return accepted(product, event.name, self.timestamp, ids, envelope, key)

    def _violate(self, field: str, rule: str) -> None:
        self.violations.append((field, rule))

    def _name(self, value: Any, presets: frozenset[str]) -> None:
        rule = "required" if value is None else values.text_rule(value)
        if rule is None:
            self.event = EVENTS.get(value)
            if self.event is None:
                rule = "unknown_event"
            elif self.event.preset not in presets:
                rule = "event_disabled"
        if rule is not None:
            self._violate("event", rule)

    def _timestamp(self, value: Any, latest_ms: int) -> None:
        rule, stored = ("required", 0) if value is None else values.read_time(value)
        if rule is None and stored > latest_ms:
            rule = "timestamp_in_future"
        if rule is None:
            self.timestamp = stored
        else:
            self._violate("timestamp", rule)

    def _identity(self, value: Any, event: Event, fields: EventFields) -> None:
        if not isinstance(value, dict):
            self._violate("identity", "required" if value is None else "type")
            return
        if event.lifecycle and value.get("client_user_id") is value.get("anonymous_id") is None:
            self._violate("identity", "required_one_of")
        self._fields(fields.identity, value, self.identity)
        self._unknown("identity.", value, fields.identity.keys)

    def _context(self, value: Any, event: Event, fields: EventFields) -> None:
        if value is not None and not isinstance(value, dict):
            self._violate("context", "type")
            return
        given: dict[str, Any] = value or {}
        self._fields(fields.context, given, self.context)
        self._required_with(event, given)
        self._result(event)
        for leaf, group in fields.inner.items():
            self._inner_object(leaf, group, given.get(leaf))
        self._unknown_context("context", given, fields.context.keys, self.context)

    def _inner_object(self, leaf: str, group: FieldGroup, value: Any) -> None:
        """Read an object within the context."""
        parent = f"context.{leaf}"
        if value is not None and not isinstance(value, dict):
            self._violate(parent, "type")
            return
        stored: dict[str, Any] = {}
        self._fields(group, value or {}, stored)
        if value is not None:
            self._unknown_context(parent, value, group.keys, stored)
            self.context[leaf] = stored

    def _required_with(self, event: Event, context: dict[str, Any]) -> None:
        for required, totals in event.required_with.items():
            has_total = any(context.get(total) is not None for total in totals)
            if has_total and context.get(required) is None:
                self._violate(f"context.{required}", "required_with")

    def _result(self, event: Event) -> None:
        """Warn of a win that is negative, and of a loss that is positive (document 3, `bet`)."""
        if event.result is None or event.cost is None:
            return
        result, amount = self.context.get(event.result), self.context.get(event.cost, 0)
        if (result == "win" and amount < 0) or (result == "loss" and amount > 0):
            self.warnings.append((f"context.{event.cost}", "value_mismatch"))

    def _fields(self, group: FieldGroup, given: dict[str, Any], to: dict[str, Any]) -> None:
        for leaf, path, read, is_required, is_suggested, deprecated in group.fields:
            value = given.get(leaf)
            if value is None:
                if is_required:
                    self._violate(path, "required")
                elif is_suggested:
                    self.warnings.append((path, "suggested_missing"))
                continue
            rule, stored = read(value, given)
            if rule is not None:
                self._violate(path, rule)
                continue
            if deprecated and value in deprecated:
                self.warnings.append((path, "deprecated_value"))
            to[leaf] = stored

    def _unknown_context(
        self, parent: str, given: dict[str, Any], known: frozenset[str], to: dict[str, Any]
    ) -> None:
        """Keep unknown fields of the context, unless they are personal data."""
        if known.issuperset(given):
            return
        for key, value in given.items():
            if key in known or value is None:
                continue
            if not self._left_to_violate:
                return
            path = f"{parent}.{_printable(key)}"
            rule, stored = self._judge_unknown(parent, path, key, value)
            if rule is not None:
                self._violate_unknown(path, rule)
            elif not isinstance(value, dict | list) or self._is_impersonal(parent, path, value):
                to[key] = stored

    def _judge_unknown(self, parent: str, path: str, key: str, value: Any) -> values.Verdict:
        """Return the rule that an unknown field breaks (or None), and the field's stored form.

        The content of an object or list is not checked here.
        """
        kept = parent in ("context", _PRIVACY)
        if (kept and key.lower() in personal.PLAINTEXT_KEYS) or personal.is_plaintext(key, value):
            return "plaintext_pii", None
        if parent == _PRIVACY and personal.is_international_phone(value):
            return "plaintext_pii", None
        hashed = kept and key.endswith(values.HASH_SUFFIX)
        if not hashed or parent != _PRIVACY:
            self._warn_of_unknown(path)
        if hashed:
            return _read_hash(value, {})
        stored = _normalise(value)
        return ("out_of_range", None) if stored is _INFINITE else (None, stored)

    def _is_impersonal(self, parent: str, path: str, value: Any) -> bool:
        """Return whether nested content has no personal data; add a violation for each finding."""
        found = personal.paths(value, private=parent == _PRIVACY)
        inside = list(islice(found, self._left_to_violate))
        for inner in inside:
            self._violate_unknown(path + _shown(inner), "plaintext_pii")
        return not inside

    def _unknown(self, prefix: str, given: dict[str, Any], known: frozenset[str]) -> None:
        if known.issuperset(given):
            return
        for key, value in given.items():
            if key not in known and value is not None:
                self._warn_of_unknown(prefix + _printable(key))

    def _violate_unknown(self, field: str, rule: str) -> None:
        self._left_to_violate -= 1
        self._violate(field, rule)

    def _warn_of_unknown(self, field: str) -> None:
        if self._left_to_warn:
            self._left_to_warn -= 1
            self.warnings.append((field, "unknown_field"))


_read_hash: Final = values.reader_of(PRIVACY_HASHES[0])
_INFINITE: Final = object()


def _printable(key: str) -> str:
    """Format a key for findings; replace an unusual key, which may itself be personal data."""
    return key if _PRINTABLE_KEY.fullmatch(key) else _REDACTED_KEY


def _shown(path: Iterable[str | int]) -> str:
    """Format a path inside a field's value, to follow the field's name, such as `.key[0]`."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{_printable(part)}" for part in path
    )


def _normalise(value: Any) -> Any:
    """Normalise the numbers in an unknown field's value; return `_INFINITE` if one is infinite.

    Integers may be ids, so all their digits are kept.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        members = {key: _normalise(member) for key, member in value.items()}
        return _INFINITE if _INFINITE in members.values() else members
    if isinstance(value, list):
        items = [_normalise(item) for item in value]
        return _INFINITE if _INFINITE in items else items
    return _INFINITE if math.isinf(value) else values.normalise_number(value)
