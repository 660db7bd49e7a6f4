"""The thorough way: every violation of an event and every warning, and its normalised form.

What it finds valid is valid; `fast` only takes events that this way would take, with the same
canonical envelope. Violations come in the order event, timestamp, identity, context; the fields in
the catalog's order, then those that it does not know as they came.
"""

import math
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from snapbid.events import codes, rules
from snapbid.events.catalog import EVENTS
from snapbid.events.fields import PRIVACY_HASHES, Event, Field, Level
from snapbid.events.identity import envelope, event_id
from snapbid.events.outcomes import Accepted


class Known(NamedTuple):
    """A field as it is read."""

    leaf: str
    path: str
    level: Level
    read: rules.Reader
    deprecated: tuple[str, ...]


class Part(NamedTuple):
    """The fields of one object."""

    fields: tuple[Known, ...]
    leaves: frozenset[str]


Parts = dict[str, Part]

_ENVELOPE_KEYS: Final = frozenset({"event", "timestamp", "identity", "context"})
_PRIVACY: Final = "context.privacy"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_UNNAMED: Final = "*"


def _part(fields: Iterable[Field]) -> Part:
    known = tuple(
        Known(one.leaf, one.path, one.level, rules.reader(one), one.deprecated) for one in fields
    )
    return Part(known, frozenset(one.leaf for one in known))


def _parts(fields: tuple[Field, ...]) -> Parts:
    """Fields by parent; a parent stands after `context`, in the order of its first field."""
    parents = dict.fromkeys(field.parent for field in fields)
    return {
        parent: _part(field for field in fields if field.parent == parent) for parent in parents
    }


_CONTEXTS: Final[dict[str, Parts]] = {
    name: _parts(event.context_fields()) for name, event in EVENTS.items()
}
_IDENTITIES: Final = {name: _part(event.identity_fields()) for name, event in EVENTS.items()}

# What can be said of an event that is not in the catalog: the base properties, where they stand.
_UNKNOWN: Final = Event(
    name="", preset="", summary="", lifecycle=True, ip=Level.OPTIONAL
)  # fmt: skip
_UNKNOWN_CONTEXT: Final = _parts(_UNKNOWN.context_fields())
_UNKNOWN_IDENTITY: Final = _part(_UNKNOWN.identity_fields())


class Examination:
    """One event, read field by field. `violations` and `warnings` are (field, rule)."""

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

    def accepted(self, product: bytes) -> Accepted:
        """The event in its normalised form; only where there is no violation."""
        event = self.event
        assert event is not None
        assert not self.violations
        identity, context = self.identity, self.context
        canonical = envelope(event.name, self.timestamp, identity, context)
        key = canonical if event.key is None else context[event.key].encode()
        return Accepted(
            event.name,
            event_id(product, event.name.encode(), key),
            self.timestamp,
            identity.get("client_user_id"),
            identity.get("anonymous_id"),
            identity.get("click_id"),
            canonical,
        )

    def _wrong(self, field: str, rule: str) -> None:
        self.violations.append((field, rule))

    def _name(self, value: Any, presets: frozenset[str]) -> None:
        rule = "required" if value is None else rules.text(value)
        if rule is None:
            self.event = EVENTS.get(value)
            if self.event is None:
                rule = "unknown_event"
            elif self.event.preset not in presets:
                rule = "event_disabled"
        if rule is not None:
            self._wrong("event", rule)

    def _timestamp(self, value: Any, latest_ms: int) -> None:
        rule, stored = ("required", 0) if value is None else rules.moment(value)
        if rule is None and stored > latest_ms:
            rule = "timestamp_in_future"
        if rule is None:
            self.timestamp = stored
        else:
            self._wrong("timestamp", rule)

    def _identity(self, value: Any) -> None:
        if not isinstance(value, dict):
            self._wrong("identity", "required" if value is None else "type")
            return
        event = self.event
        part = _UNKNOWN_IDENTITY if event is None else _IDENTITIES[event.name]
        lifecycle = event is None or event.lifecycle
        if lifecycle and value.get("client_user_id") is value.get("anonymous_id") is None:
            self._wrong("identity", "required_one_of")
        self._fields(part, value, self.identity)
        self._unknown("identity.", value, part.leaves)

    def _context(self, value: Any) -> None:
        if value is not None and not isinstance(value, dict):
            self._wrong("context", "type")
            return
        given: dict[str, Any] = value or {}
        event = self.event
        parts = _UNKNOWN_CONTEXT if event is None else _CONTEXTS[event.name]
        self._fields(parts["context"], given, self.context)
        if event is not None:
            self._required_with(event, given)
        groups = [parent for parent in parts if parent != "context"]
        for parent in groups:
            self._group(parent, parts[parent], given)
        known = parts["context"].leaves.union(_leaf(parent) for parent in groups)
        self._rest("context", given, known, self.context)

    def _group(self, parent: str, part: Part, context: dict[str, Any]) -> None:
        """An object inside the context."""
        leaf = _leaf(parent)
        value = context.get(leaf)
        if value is not None and not isinstance(value, dict):
            self._wrong(parent, "type")
            return
        stored: dict[str, Any] = {}
        self._fields(part, value or {}, stored)
        if value is not None:
            self._rest(parent, value, part.leaves, stored)
            self.context[leaf] = stored

    def _required_with(self, event: Event, context: dict[str, Any]) -> None:
        for needed, totals in event.required_with.items():
            given = any(context.get(total) is not None for total in totals)
            if given and context.get(needed) is None:
                self._wrong(f"context.{needed}", "required_with")

    def _fields(self, part: Part, given: dict[str, Any], to: dict[str, Any]) -> None:
        for leaf, path, level, read, deprecated in part.fields:
            value = given.get(leaf)
            if value is None:
                if level is Level.REQUIRED:
                    self._wrong(path, "required")
                elif level is Level.SUGGESTED:
                    self.warnings.append((path, "suggested_missing"))
                continue
            rule, stored = read(value, given)
            if rule is not None:
                self._wrong(path, rule)
                continue
            if deprecated and value in deprecated:
                self.warnings.append((path, "deprecated_value"))
            to[leaf] = stored

    def _rest(
        self, parent: str, given: dict[str, Any], known: frozenset[str], to: dict[str, Any]
    ) -> None:
        """Fields of the context that the event does not have: kept, but for personal data."""
        for key, value in given.items():
            if key in known or value is None:
                continue
            path = f"{parent}.{_shown(key)}"
            rule, stored = self._judge(parent, path, key, value)
            if rule is None:
                to[key] = stored
            else:
                self._wrong(path, rule)

    def _judge(self, parent: str, path: str, key: str, value: Any) -> rules.Verdict:
        personal = parent in ("context", _PRIVACY)
        if personal and codes.is_plaintext_key(key):
            return "plaintext_pii", None
        hashed = personal and key.endswith(codes.HASH_SUFFIX)
        if not hashed or parent != _PRIVACY:
            self.warnings.append((path, "unknown_field"))
        if hashed:
            return _read_hash(value, {})
        stored = _kept(value)
        return ("out_of_range", None) if stored is _INFINITE else (None, stored)

    def _unknown(self, prefix: str, given: dict[str, Any], known: frozenset[str]) -> None:
        for key, value in given.items():
            if key not in known and value is not None:
                self.warnings.append((prefix + _shown(key), "unknown_field"))


_read_hash: Final = rules.reader(PRIVACY_HASHES[0])
_INFINITE: Final = object()


def _leaf(parent: str) -> str:
    return parent.removeprefix("context.")


def _shown(key: str) -> str:
    """A key as findings name it: a partner's own key might itself be personal data."""
    return key if _NAME.fullmatch(key) else _UNNAMED


def _kept(value: Any) -> Any:
    """A value of an unknown field with its numbers normalised; `_INFINITE` if one is infinite."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, dict):
        kept = {key: _kept(inner) for key, inner in value.items()}
        return _INFINITE if _INFINITE in kept.values() else kept
    if isinstance(value, list):
        items = [_kept(inner) for inner in value]
        return _INFINITE if _INFINITE in items else items
    return _INFINITE if math.isinf(value) else rules.plain(value)
