"""Conformance cases of the server events, made from the catalog: what each field may not be.

`generate` returns an envelope with every field of an event, and cases, each of which changes it:

    set         path -> new value; {"$raw": text} is that JSON, {"$repeat": [text, n]} a long one
    drop        paths to leave out
    presets     the product's presets, where not all
    violations  what is wrong, all of it and in order; an event without any is valid
    code        of the refusal
    warnings    in test mode, beside those of the envelope itself
    stored      path -> value in the normalised envelope

The expectations are written here from the contract's words and not asked of the code under test.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from snapbid.events.catalog import GAME_TYPES
from snapbid.events.fields import CORE, IGAMING, Event, Field, Kind, Level
from support.event_values import (
    DIGEST,
    EMPTY,
    INFINITE,
    NOT_NUMBER,
    PERSONAL_KEYS,
    RIGHT,
    TIMES,
    VALID,
    WRONG,
    raw,
)

NOW_MS: Final = 1_790_000_000_000
HOUR_MS: Final = 3_600_000

Case = dict[str, Any]


def put(envelope: dict[str, Any], path: str, value: Any) -> None:
    """Set `context.privacy.email_hash` and the like."""
    *parents, leaf = path.split(".")
    for parent in parents:
        envelope = envelope.setdefault(parent, {})
    envelope[leaf] = value


def whole(event: Event) -> dict[str, Any]:
    """An envelope with every field of the event."""
    envelope: dict[str, Any] = {"event": event.name, "timestamp": NOW_MS}
    for field in _fields(event):
        put(envelope, field.path, field.values[0] if field.values else VALID[field.kind])
    return envelope


def least(event: Event) -> list[str]:
    """What can be left out."""
    return [field.path for field in _fields(event) if field.level is not Level.REQUIRED]


def generate(event: Event) -> tuple[dict[str, Any], list[Case]]:
    """The envelope and the cases of one event."""
    fields = _fields(event)
    cases = [*_of_envelope(event), *_of_identity(event), *_of_context(event)]
    cases += [case for field in fields for case in _of_field(event, field)]
    envelope = whole(event)
    if event.name == "bet":
        cases = [_of_outcome(envelope, case) for case in [*cases, *_of_results(event)]]
    return envelope, cases


def _of_results(event: Event) -> Iterator[Case]:
    result, amount = "context.bet_result", "context.bet_result_amount"
    for stated in ("win", "loss"):
        for net in (10, 0.5, 0, -0.0, -0.5, -10):
            yield _case(event, f"a {stated} of {net}", [], set={result: stated, amount: net})


def _of_outcome(envelope: dict[str, Any], case: Case) -> Case:
    """A case of a bet, with the warning that its amount contradicts its result."""
    if "violations" in case:
        return case
    context = apply(envelope, case)["context"]
    result, amount = context["bet_result"], context["bet_result_amount"]
    sign = {"win": 1, "loss": -1}[result]
    if not isinstance(amount, int | float) or amount * sign >= 0:
        return case
    warning = _violation("bet", "context.bet_result_amount", "value_mismatch")
    return case | {"warnings": [warning]}


def _fields(event: Event) -> list[Field]:
    """The fields in the order of violations: those of the context before those of objects in it."""
    fields = (*event.identity_fields(), *event.context_fields())
    return sorted(fields, key=lambda field: field.path.count("."))


def _violation(event: str | None, field: str, rule: str) -> dict[str, Any]:
    return {"field": field, "rule": rule, "event": event}


def _case(event: Event, name: str, violations: list[tuple[str, str]], **changes: Any) -> Case:
    made: Case = {"case": name, **changes}
    if violations:
        made.setdefault("code", "VALIDATION_ERROR")
        made["violations"] = [_violation(event.name, *violation) for violation in violations]
    return made


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 40 else f"{text[:36]}…"


def _of_field(event: Event, field: Field) -> Iterator[Case]:
    path = field.path
    yield from _left_out(event, field)
    wrong = list(WRONG[field.kind])
    if field.kind is Kind.NUMBER and not field.signed:
        wrong += [(-1, "min"), (-0.01, "min"), (raw("-1e30"), "min")]
    if field.kind is Kind.CHOICE:
        wrong += [(value.upper(), "enum") for value in field.values]
    for value, rule in wrong:
        yield _case(event, f"{path} {_shown(value)}", [(path, rule)], set={path: value})
    right = list(RIGHT[field.kind])
    if field.signed:
        right += [(-3, -3), (-0.5, -0.5)]
    for value, stored in right:
        yield _case(event, f"{path} {_shown(value)}", [], set={path: value}, stored={path: stored})
    for value in field.values:
        made = _case(event, f"{path} {value}", [], set={path: value})
        made["stored"] = {path: _real(field, value)}
        if value in field.deprecated:
            made["warnings"] = [_violation(event.name, path, "deprecated_value")]
        yield made
    if field.kind is Kind.CURRENCY:
        yield from _of_crypto(event, path)


def _real(field: Field, value: str) -> str:
    """What document 3 and the contract say is stored for a spelling."""
    if field.leaf == "game_type":
        return next(key for key, names in GAME_TYPES.items() if value in (key, *names))
    names = {"mobile_os_1": "ios", "mobile_os_2": "android",
             "store_1": "app_store", "store_2": "google_play"}  # fmt: skip
    return names.get(value, value)


def _left_out(event: Event, field: Field) -> Iterator[Case]:
    path = field.path
    name = f"{path} left out"
    needed = event.required_with.get(field.leaf)
    for change in ({"drop": [path]}, {"set": {path: None}}):
        if field.level is Level.REQUIRED:
            yield _case(event, name, [(path, "required")], **change)
        elif needed:
            yield _case(event, name, [(path, "required_with")], **change)
        else:
            made = _case(event, name, [], **change)
            if field.level is Level.SUGGESTED:
                made["warnings"] = [_violation(event.name, path, "suggested_missing")]
            yield made
    for total in needed or ():
        others = [f"context.{leaf}" for leaf in needed or () if leaf != total]
        changes = {"drop": [path, *others], "set": {f"context.{total}": 0}}
        yield _case(event, f"{path} with {total} 0", [(path, "required_with")], **changes)


def _of_crypto(event: Event, path: str) -> Iterator[Case]:
    flag = "context.is_crypto"
    for value, stored in (("BTC", "BTC"), ("usdt", "USDT"), ("1INCH", "1INCH"), ("EUR", "EUR")):
        case = _case(event, f"crypto {value}", [], set={path: value, flag: True})
        yield case | {"stored": {path: stored}}
    for value in ("B", "ABCDEFGHIJK", "BTC-USD", "b tc", "\u017f\u017f"):
        yield _case(event, f"crypto {value}", [(path, "currency")], set={path: value, flag: True})
    both = [(path, "type"), (flag, "type")]
    yield _case(event, "flag and currency of a wrong type", both, set={path: 5, flag: "true"})
    yield _case(event, "a symbol under a wrong flag", [(flag, "type")],
                set={path: "BTC", flag: "true"})  # fmt: skip


def _of_envelope(event: Event) -> Iterator[Case]:
    yield _case(event, "every field", [])
    yield from _of_time(event)
    optional = [path for path in least(event) if path not in _only_users(event)]
    made = _case(event, "required fields only", [], drop=optional)
    made["warnings"] = [
        _violation(event.name, field.path, "suggested_missing")
        for field in _fields(event)
        if field.level is Level.SUGGESTED and field.path in optional
    ]
    yield made
    required = [field.path for field in _fields(event) if field.level is Level.REQUIRED]
    wrong = [(path, "required") for path in required]
    names = [f"context.{name}" for name in event.required_with]
    yield _case(event, "no required field", wrong, drop=[*required])
    if names:
        yield _case(event, "nothing that is needed",
                    [*wrong, *((name, "required_with") for name in names)],
                    drop=[*required, *names])  # fmt: skip
    if event.preset == IGAMING:
        disabled = ("event", "event_disabled")
        yield _case(event, "disabled", [disabled], presets=[CORE], code="EVENT_DISABLED")
        yield _case(event, "disabled and wrong", [disabled, ("timestamp", "required")],
                    presets=[CORE], drop=["timestamp"])  # fmt: skip
    else:
        yield _case(event, "needs no subscription", [], presets=[])
    for name in (f"{event.name}s", event.name.upper(), f" {event.name}"):
        yield {"case": f"unknown {name}", "set": {"event": name}, "code": "UNKNOWN_EVENT_TYPE",
               "violations": [_violation(None, "event", "unknown_event")]}  # fmt: skip


def _only_users(event: Event) -> tuple[str, ...]:
    return ("identity.client_user_id",) if event.lifecycle else ()


def _of_time(event: Event) -> Iterator[Case]:
    for value, rule in (*NOT_NUMBER, *INFINITE, *TIMES, (None, "required"),
                        (NOW_MS + HOUR_MS + 1, "timestamp_in_future"),
                        (9_999_999_999_999, "timestamp_in_future")):  # fmt: skip
        yield _case(event, f"timestamp {_shown(value)}", [("timestamp", rule)],
                    set={"timestamp": value})  # fmt: skip
    for value in (NOW_MS + HOUR_MS, raw(f"{NOW_MS}.0"), 1_000_000_000_000):
        stored = NOW_MS if isinstance(value, dict) else value
        yield _case(event, f"timestamp {_shown(value)}", [], set={"timestamp": value},
                    stored={"timestamp": stored})  # fmt: skip


def _of_identity(event: Event) -> Iterator[Case]:
    user, other = "identity.client_user_id", "identity.anonymous_id"
    for value in ("user", 5, True, ["user"]):
        yield _case(event, f"identity {_shown(value)}", [("identity", "type")],
                    set={"identity": value})  # fmt: skip
    yield _case(event, "no identity", [("identity", "required")], drop=["identity"])
    yield _case(event, "identity null", [("identity", "required")], set={"identity": None})
    if event.lifecycle:
        neither = [("identity", "required_one_of")]
        yield _case(event, "neither id", neither, drop=[user, other])
        yield _case(event, "both ids null", neither, set={user: None, other: None})
        yield _case(event, "click id alone", neither, set={"identity": {"click_id": "c"}})
        made = _case(event, "anonymous id alone", [], drop=[user])
        made["warnings"] = [_violation(event.name, user, "suggested_missing")]
        yield made
    else:
        yield _case(event, "click id alone", [(user, "required")],
                    set={"identity": {"click_id": "c"}})  # fmt: skip
        yield _case(event, "no id", [(user, "required")], set={"identity": {}},
                    )  # fmt: skip
    made = _case(event, "unknown fields beside", [], set={"identity.extra": 1, "extra": {"a": 1}})
    made["warnings"] = [_violation(event.name, "identity.extra", "unknown_field"),
                        _violation(event.name, "extra", "unknown_field")]  # fmt: skip
    yield made


def _of_context(event: Event) -> Iterator[Case]:
    wrong: list[Any] = ["text", 5, False, [1], [{}]]
    for value in wrong:
        yield _case(event, f"context {_shown(value)}", [("context", "type")],
                    set={"context": value})  # fmt: skip
    missing = [
        (field.path, "required")
        for field in event.context_fields()
        if field.level is Level.REQUIRED
    ]
    yield _case(event, "no context", missing, drop=["context"])
    yield _case(event, "an empty context", missing, set={"context": {}})
    for group in sorted({field.parent for field in event.context_fields()} - {"context"}):
        for value in ("text", 5, [1]):
            yield _case(event, f"{group} {_shown(value)}", [(group, "type")], set={group: value})
    yield from _of_personal(event)
    kept = {"list": [1, {"a": None}], "number": 1.5, "empty": ""}
    made = _case(event, "unknown fields of the context", [],
                 set={"context.vendor": kept}, stored={"context.vendor": kept})  # fmt: skip
    yield made | {"warnings": [_violation(event.name, "context.vendor", "unknown_field")]}
    yield _case(event, "an infinite number in an unknown field",
                [("context.vendor", "out_of_range")],
                set={"context.vendor": {"deep": [raw("1e400")]}})  # fmt: skip


def _of_personal(event: Event) -> Iterator[Case]:
    for parent in ("context", "context.privacy"):
        for key in PERSONAL_KEYS:
            path = f"{parent}.{key}"
            yield _case(event, path, [(path, "plaintext_pii")], set={path: "x"})
        path = f"{parent}.name_hash"
        for value, rule in ((DIGEST[1:], "sha256_hex"), (EMPTY, "empty_hash"), (5, "type"),
                            ("a@example.com", "plaintext_pii"), ("", "empty")):  # fmt: skip
            yield _case(event, f"{path} {value}", [(path, rule)], set={path: value})
        made = _case(event, path, [], set={path: DIGEST.upper()}, stored={path: DIGEST})
        if parent == "context":
            made["warnings"] = [_violation(event.name, path, "unknown_field")]
        yield made


def apply(envelope: dict[str, Any], case: Case) -> dict[str, Any]:
    """The envelope as a case changes it."""
    changed = deepcopy(envelope)
    for path in case.get("drop", ()):
        *parents, leaf = path.split(".")
        holder = changed
        for parent in parents:
            holder = holder.get(parent, {})
        holder.pop(leaf, None)
    for path, value in case.get("set", {}).items():
        put(changed, path, value)
    return changed


def to_json(value: Any) -> str:
    """JSON text of a value with `$raw` and `$repeat` in it."""
    if isinstance(value, dict):
        if "$raw" in value:
            return str(value["$raw"])
        if "$repeat" in value:
            text, times = value["$repeat"]
            return json.dumps(text * times, ensure_ascii=False)
        inner = (f"{json.dumps(key)}:{to_json(member)}" for key, member in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
