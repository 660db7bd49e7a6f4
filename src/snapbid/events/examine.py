"""The thorough path: every violation and every warning of an event, and its normalised form.

This path defines what is valid: `fast` takes only events that it would accept, with the same
canonical envelope. Violations come in the order event, timestamp, identity, context; within an
object the catalog's fields in its order, then unknown fields as they came.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from snapbid.events import personal, values
from snapbid.events.catalog import EVENTS
from snapbid.events.fields import PRIVACY_HASHES, Event, Field, Level
from snapbid.events.outcomes import AcceptedEvent, canonical_envelope, event_id


class FieldReader(NamedTuple):
    """A field of the catalog with the reader of its values."""

    leaf: str
    path: str
    level: Level
    read: values.Reader
    deprecated: tuple[str, ...]


class FieldGroup(NamedTuple):
    """The fields of an object."""

    fields: tuple[FieldReader, ...]
    leaves: frozenset[str]


FieldGroups = dict[str, FieldGroup]
"""Path of an object, `context` first -> its fields."""

_ENVELOPE_KEYS: Final = frozenset({"event", "timestamp", "identity", "context"})
_PRIVACY: Final = "context.privacy"
_PRINTABLE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_REDACTED_KEY: Final = "*"


def _group(fields: Iterable[Field]) -> FieldGroup:
    readers = tuple(
        FieldReader(
            field.leaf, field.path, field.level, values.reader_of(field), field.deprecated
        )
        for field in fields
    )  # fmt: skip
    return FieldGroup(readers, frozenset(reader.leaf for reader in readers))


def _groups(fields: tuple[Field, ...]) -> FieldGroups:
    """Fields by parent, the parents in the order of their first fields."""
    parents = dict.fromkeys(field.parent for field in fields)
    return {
        parent: _group(field for field in fields if field.parent == parent) for parent in parents
    }


_CONTEXTS: Final[dict[str, FieldGroups]] = {
    name: _groups(event.context_fields()) for name, event in EVENTS.items()
}
_IDENTITIES: Final = {name: _group(event.identity_fields()) for name, event in EVENTS.items()}

# What is checked in an event that is not in the catalog: the base properties, if present.
_UNKNOWN: Final = Event(
    name="", preset="", summary="", lifecycle=True, ip=Level.OPTIONAL
)  # fmt: skip
_UNKNOWN_CONTEXT: Final = _groups(_UNKNOWN.context_fields())
_UNKNOWN_IDENTITY: Final = _group(_UNKNOWN.identity_fields())


class Examination:
    """An event, read field by field. `violations` and `warnings` are (field, rule) pairs."""

    def __init__(self, document: Any, presets: frozenset[str], latest_ms: int) -> None:
        self.violations: list[tuple[str, str]] = []
        self.warnings: list[tuple[str, str]] = []
        self.event: Event | None = None
        self.timestamp = 0
        self.identity: dict[str, Any] = {}
        self.context: dict[str, Any] = {}
        if not isinstance(document, dict):
            self.violations.append(("", "not_object"))
            return
        self._name(document.get("event"), presets)
        self._timestamp(document.get("timestamp"), latest_ms)
        self._identity(document.get("identity"))
        self._context(document.get("context"))
        self._unknown("", document, _ENVELOPE_KEYS)

    @property
    def name(self) -> str | None:
        """The event's name if it is in the catalog."""
        return self.event.name if self.event is not None else None

    def accept(self, product: bytes) -> AcceptedEvent:
        """The event in its normalised form; only without violations."""
        event = self.event
        assert event is not None
        assert not self.violations
        identity, context = self.identity, self.context
        envelope = canonical_envelope(event.name, self.timestamp, identity, context)
        key = envelope if event.key is None else context[event.key].encode()
        return AcceptedEvent(
            event.name,
            event_id(product, event.name.encode(), key),
            self.timestamp,
            identity.get("client_user_id"),
            identity.get("anonymous_id"),
            identity.get("click_id"),
            envelope,
        )

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

    def _identity(self, value: Any) -> None:
        if not isinstance(value, dict):
            self._violate("identity", "required" if value is None else "type")
            return
        event = self.event
        group = _UNKNOWN_IDENTITY if event is None else _IDENTITIES[event.name]
        lifecycle = event is None or event.lifecycle
        if lifecycle and value.get("client_user_id") is value.get("anonymous_id") is None:
            self._violate("identity", "required_one_of")
        self._fields(group, value, self.identity)
        self._unknown("identity.", value, group.leaves)

    def _context(self, value: Any) -> None:
        if value is not None and not isinstance(value, dict):
            self._violate("context", "type")
            return
        given: dict[str, Any] = value or {}
        event = self.event
        groups = _UNKNOWN_CONTEXT if event is None else _CONTEXTS[event.name]
        self._fields(groups["context"], given, self.context)
        if event is not None:
            self._required_with(event, given)
        inner = [parent for parent in groups if parent != "context"]
        for parent in inner:
            self._inner_object(parent, groups[parent], given)
        known = groups["context"].leaves.union(_leaf(parent) for parent in inner)
        self._unknown_context("context", given, known, self.context)

    def _inner_object(self, parent: str, group: FieldGroup, context: dict[str, Any]) -> None:
        """An object inside the context."""
        leaf = _leaf(parent)
        value = context.get(leaf)
        if value is not None and not isinstance(value, dict):
            self._violate(parent, "type")
            return
        stored: dict[str, Any] = {}
        self._fields(group, value or {}, stored)
        if value is not None:
            self._unknown_context(parent, value, group.leaves, stored)
            self.context[leaf] = stored

    def _required_with(self, event: Event, context: dict[str, Any]) -> None:
        for required, totals in event.required_with.items():
            has_total = any(context.get(total) is not None for total in totals)
            if has_total and context.get(required) is None:
                self._violate(f"context.{required}", "required_with")

    def _fields(self, group: FieldGroup, given: dict[str, Any], to: dict[str, Any]) -> None:
        for leaf, path, level, read, deprecated in group.fields:
            value = given.get(leaf)
            if value is None:
                if level is Level.REQUIRED:
                    self._violate(path, "required")
                elif level is Level.SUGGESTED:
                    self.warnings.append((path, "suggested_missing"))
                continue
            rule, stored = read(value, given)
            if rule is None and path.startswith("context.") and personal.is_plaintext("", value):
                rule = "plaintext_pii"
            if rule is not None:
                self._violate(path, rule)
                continue
            if deprecated and value in deprecated:
                self.warnings.append((path, "deprecated_value"))
            to[leaf] = stored

    def _unknown_context(
        self, parent: str, given: dict[str, Any], known: frozenset[str], to: dict[str, Any]
    ) -> None:
        """Keep the context's fields that the event does not have, unless they are personal data."""
        for key, value in given.items():
            if key in known or value is None:
                continue
            path = f"{parent}.{_printable(key)}"
            rule, stored = self._judge_unknown(parent, path, key, value)
            if rule is not None:
                self._violate(path, rule)
                continue
            inside = [path + _shown(place) for place in personal.places(value)]
            for each in inside:
                self._violate(each, "plaintext_pii")
            if not inside:
                to[key] = stored

    def _judge_unknown(self, parent: str, path: str, key: str, value: Any) -> values.Verdict:
        kept = parent in ("context", _PRIVACY)
        if (kept and key.lower() in personal.PLAINTEXT_KEYS) or personal.is_plaintext(key, value):
            return "plaintext_pii", None
        hashed = kept and key.endswith(values.HASH_SUFFIX)
        if not hashed or parent != _PRIVACY:
            self.warnings.append((path, "unknown_field"))
        if hashed:
            return _read_hash(value, {})
        stored = _normalise(value)
        return ("out_of_range", None) if stored is _INFINITE else (None, stored)

    def _unknown(self, prefix: str, given: dict[str, Any], known: frozenset[str]) -> None:
        for key, value in given.items():
            if key not in known and value is not None:
                self.warnings.append((prefix + _printable(key), "unknown_field"))


_read_hash: Final = values.reader_of(PRIVACY_HASHES[0])
_INFINITE: Final = object()


def _leaf(parent: str) -> str:
    return parent.removeprefix("context.")


def _printable(key: str) -> str:
    """A key as findings name it; a partner's own key might itself be personal data."""
    return key if _PRINTABLE_KEY.fullmatch(key) else _REDACTED_KEY


def _shown(place: Iterable[str | int]) -> str:
    """A place below a field, as findings name it."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{_printable(part)}" for part in place
    )


def _normalise(value: Any) -> Any:
    """A value of an unknown field with its numbers normalised; `_INFINITE` if one is infinite."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, dict):
        members = {key: _normalise(member) for key, member in value.items()}
        return _INFINITE if _INFINITE in members.values() else members
    if isinstance(value, list):
        items = [_normalise(item) for item in value]
        return _INFINITE if _INFINITE in items else items
    return _INFINITE if math.isinf(value) else values.normalise_number(value)
