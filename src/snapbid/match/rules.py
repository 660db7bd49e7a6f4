"""How the rules of a campaign document are written, and combined into lists and objects.

A rule is written once and serves twice: its `check` names every mistake, and its `shape` lets
msgspec decode a document that keeps the rules several times as fast. A shape may be narrower than
the rule, never wider: a document that it refuses is checked. Two rules hold everywhere:

- `null` and an empty list mean absent;
- an unknown key is a mistake.
"""

import difflib
import json
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, force_setattr

from snapbid.match.campaign import CampaignMistake

MAX_LIST: Final = 1_000  # items of a list, unless stated otherwise
MAX_HINTS: Final = 100  # mistakes in a document after which no more spellings are suggested
MAX_CACHED: Final = 100_000  # normal forms kept per rule

Path: TypeAlias = tuple[Any, ...]
"""Where a value is: `(path of the parent, key or index)`, and `()` for the document. It is written
out only when there is a mistake to report."""

Mistakes: TypeAlias = list[CampaignMistake]
Check: TypeAlias = Callable[[Any, Path, Mistakes], Any]


class Rule(NamedTuple):
    """What a value must be.

    `check` takes a decoded JSON value, adds its mistakes and returns its normal form, which counts
    only if there was no mistake. `shape` is a msgspec type; `finish` gives the normal form of its
    values, or raises UndecidedError. Without `finish` they are in their normal form.
    """

    check: Check
    shape: Any
    finish: Callable[[Any], Any] | None = None


class UndecidedError(ValueError):
    """The document has a mistake, or a rare form that only `check` reads."""


class Remembered(dict[Any, Any]):
    """The normal forms of values, by value. Raises UndecidedError where `read` gives None."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, value: Any) -> Any:
        normal = self._read(value)
        if normal is None:
            raise UndecidedError
        if len(self) >= MAX_CACHED:
            self.clear()
        self[value] = normal
        return normal


def checked(check: Check) -> Callable[[Any], Any]:
    """Give the normal form of a decoded JSON value; None if it has mistakes."""

    def read(value: Any) -> Any:
        mistakes: Mistakes = []
        normal = check(value, (), mistakes)
        return None if mistakes else normal

    return read


Fields: TypeAlias = dict[str, Any]  # an object's fields that are present, normalised


def report(mistakes: Mistakes, at: Path, rule: str) -> None:
    """Add a mistake at a path."""
    mistakes.append(CampaignMistake(path_text(at), rule))


def path_text(at: Path) -> str:
    """Write a path as `targeting.country.include[3]`."""
    text = ""
    while at:
        at, key = at
        text = (f"[{key}]" if isinstance(key, int) else f".{key}") + text
    return text.removeprefix(".")


def shown(value: object) -> str:
    """Quote a value in a message, on one line and shortened."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 60 else value[:60] + "...")
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."


# -- lists and objects ----------------------------------------------------------------------------


def list_of(
    rule: Rule,
    most: int = MAX_LIST,
    *,
    distinct: bool = True,
    unique: str | None = None,
    together: Callable[[Any, Path, Mistakes], None] | None = None,
) -> Rule:
    """A list of values.

    With `distinct`, equal ones are kept once, in order. `unique` is a field in which no two objects
    may be equal. `together` is a rule about the normal forms of all values; it sees None where a
    value has a mistake.
    """
    check_item, _, finish_item = rule

    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        if not isinstance(value, list):
            report(mistakes, at, f"must be a list, found {shown(value)}")
            return ()
        if len(value) > most:
            report(mistakes, at, f"must have at most {most} entries, found {len(value)}")
            return ()
        before = len(mistakes)
        values = [check_item(item, (at, index), mistakes) for index, item in enumerate(value)]
        if unique is not None:
            _report_repeated(mistakes, at, unique, value)
        if together is not None:
            together(values, at, mistakes)
        return tuple(dict.fromkeys(values) if distinct and len(mistakes) == before else values)

    def finish(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if finish_item is not None:
            if distinct and together is None:
                return tuple(dict.fromkeys(map(finish_item, values)))
            values = tuple(map(finish_item, values))
        if unique is not None and len({getattr(value, unique) for value in values}) < len(values):
            raise UndecidedError
        if together is not None:
            _require_none(together, values)
        return tuple(dict.fromkeys(values)) if distinct and len(values) > 1 else values

    shape: Any = tuple[rule.shape, ...]  # type: ignore[name-defined]
    return Rule(check, Annotated[shape, Meta(max_length=most)], finish)


def _report_repeated(mistakes: Mistakes, at: Path, field: str, objects: list[Any]) -> None:
    first_with: dict[str, int] = {}
    for index, item in enumerate(objects):
        name = item.get(field) if isinstance(item, dict) else None
        if isinstance(name, str) and first_with.setdefault(name, index) != index:
            first = path_text((at, first_with[name]))
            report(
                mistakes, ((at, index), field), f"is the {field} of {first} already: {shown(name)}"
            )


def object_of(
    rules: dict[str, Rule],
    build: Callable[..., object],
    *,
    required: tuple[str, ...] = (),
    together: Callable[[Fields, Path, Mistakes], None] | None = None,
    about: tuple[str, ...] = (),
) -> Rule:
    """An object, field by field.

    `together` is a rule about the fields `about`. It sees the normal forms of those that are
    present, None where a field has a mistake. `build` gets all fields as keyword arguments.
    """
    checks = {name: rule.check for name, rule in rules.items()}
    needed = frozenset(required)

    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        if not isinstance(value, dict):
            report(mistakes, at, f"must be an object, found {shown(value)}")
            return None
        before = len(mistakes)
        fields: Fields = {}
        for key, item in value.items():
            if key not in checks:
                _report_unknown(mistakes, at, str(key), checks)
            elif item is not None and item != []:
                fields[key] = checks[key](item, (at, key), mistakes)
        for key in required:
            if key not in fields:
                report(mistakes, (at, key), "is required")
        if together is not None:
            together({name: fields.get(name) for name in about or fields}, at, mistakes)
        return build(**fields) if len(mistakes) == before else None

    if isinstance(build, type) and issubclass(build, msgspec.Struct):
        return Rule(check, *_shape_of_struct(rules, build, needed, together, about))
    return Rule(check, *_shape_of_object(rules, build, needed, together))


def _shape_of_object(
    rules: dict[str, Rule],
    build: Callable[..., object],
    needed: frozenset[str],
    together: Callable[[Fields, Path, Mistakes], None] | None,
) -> tuple[type[msgspec.Struct], Callable[[msgspec.Struct], Any]]:
    """The shape of an object that `build` makes of other fields."""
    fields = [
        (name, rule.shape) if name in needed else (name, _optional(rule), None)
        for name, rule in sorted(rules.items(), key=lambda item: item[0] not in needed)
    ]
    shape = msgspec.defstruct("Shape", fields, forbid_unknown_fields=True, gc=False)
    finishes = {name: rule.finish for name, rule in rules.items()}

    def finish(decoded: msgspec.Struct) -> Any:
        normal: Fields = {}
        for name, value in asdict(decoded).items():
            if value is not None:
                finish_value = finishes[name]
                value = value if finish_value is None else finish_value(value)
                if value is not None and value != ():
                    normal[name] = value
        if not needed <= normal.keys():
            raise UndecidedError
        if together is not None:
            _require_none(together, normal)
        return build(**normal)

    return shape, finish


def _shape_of_struct(
    rules: dict[str, Rule],
    struct: type[msgspec.Struct],
    needed: frozenset[str],
    together: Callable[[Fields, Path, Mistakes], None] | None,
    about: tuple[str, ...],
) -> tuple[type[msgspec.Struct], Callable[[msgspec.Struct], Any]]:
    """The shape of an object that is decoded to the struct itself, in fact to a subclass."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    fields = [
        (name, rule.shape) if name in needed else (name, _optional(rule), defaults[name])
        for name, rule in rules.items()
    ]
    config = struct.__struct_config__
    shape = msgspec.defstruct(
        "Shape", fields, bases=(struct,), forbid_unknown_fields=True, frozen=True, gc=config.gc
    )
    finishes = [
        (name, rule.finish, None if name in needed else defaults[name])
        for name, rule in rules.items()
        if rule.finish is not None or (name not in needed and defaults[name] is not None)
    ]

    def finish(decoded: msgspec.Struct) -> Any:
        for name, finish_value, default in finishes:
            value = getattr(decoded, name)
            if value == default:
                continue
            if value is None:
                normal = default
            else:
                normal = value if finish_value is None else finish_value(value)
                if normal is None:  # null, where a number is required
                    raise UndecidedError
            if normal is not value:
                force_setattr(decoded, name, normal)
        if together is not None:
            _require_none(together, {name: getattr(decoded, name) for name in about})
        return decoded

    return shape, finish


def _optional(rule: Rule) -> Any:
    return rule.shape if rule.shape is msgspec.Raw else rule.shape | None


def _require_none(together: Callable[[Any, Path, Mistakes], None], values: Any) -> None:
    """Raise UndecidedError if the values break the rule."""
    mistakes: Mistakes = []
    together(values, (), mistakes)
    if mistakes:
        raise UndecidedError


def _report_unknown(mistakes: Mistakes, at: Path, key: str, known: dict[str, Check]) -> None:
    hints = len(mistakes) < MAX_HINTS
    near = difflib.get_close_matches(key[:60].lower(), known, 1) if hints else []
    plain = key.isidentifier() and key.isascii() and len(key) <= 60
    more = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
    report(mistakes, (at, key if plain else shown(key)), f"is not a known field{more}")
