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
from types import SimpleNamespace
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


class Mistakes(list[CampaignMistake]):
    """What a document is refused for, and beside it the `warnings` of one that is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[CampaignMistake] = []


Check: TypeAlias = Callable[[Any, Path, Mistakes], Any]
Finish: TypeAlias = Callable[[Any], Any]
Together: TypeAlias = Callable[[Any, Path, Mistakes], None]
"""A rule about several values: the normal forms of a list's items, or of an object's fields as
attributes. A value that is absent or has a mistake is None."""


class Rule(NamedTuple):
    """What a value must be.

    `check` takes a decoded JSON value, adds its mistakes and warnings, and returns its normal form,
    which counts only if there was no mistake. `shape` is a msgspec type; `finish` gives the normal
    form of its values, or raises UndecidedError. Without `finish` they are in their normal form.
    """

    check: Check
    shape: Any
    finish: Finish | None = None


class UndecidedError(ValueError):
    """The document has a mistake, a warning, or a rare form that only `check` reads."""


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
        mistakes = Mistakes()
        normal = check(value, (), mistakes)
        return None if mistakes else normal

    return read


Fields: TypeAlias = dict[str, Any]  # an object's fields that are present, normalised


def report(mistakes: Mistakes, at: Path, rule: str) -> None:
    """Add a mistake at a path."""
    mistakes.append(CampaignMistake(path_text(at), rule))


def warn(mistakes: Mistakes, at: Path, rule: str) -> None:
    """Add a warning at a path."""
    mistakes.warnings.append(CampaignMistake(path_text(at), rule))


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
    least: int = 0,
    distinct: bool = True,
    unique: str | None = None,
    together: Together | None = None,
) -> Rule:
    """A list of values.

    `least` is 1 for a field that is required, since an empty list means absent. With `distinct`,
    equal values are kept once, in order. `unique` is a field in which no two objects may be equal.
    `together` is a rule that only a long document can break; `finish` leaves it out.
    """
    check_item, item_shape, finish_item = rule

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
            values = tuple(map(finish_item, values))
        if len(values) < 2:
            return values
        if unique is not None and len({getattr(value, unique) for value in values}) < len(values):
            raise UndecidedError
        return tuple(dict.fromkeys(values)) if distinct else values

    shape: Any = tuple[item_shape, ...]  # type: ignore[valid-type]
    return Rule(check, Annotated[shape, Meta(min_length=least, max_length=most)], finish)


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
    struct: type[msgspec.Struct],
    build: Callable[..., msgspec.Struct] | None = None,
    *,
    required: tuple[str, ...] = (),
    together: Together | None = None,
    settle: Callable[[Any], None] | None = None,
) -> Rule:
    """An object that becomes a struct, field by field.

    `build` makes it from the fields, as keyword arguments, where it has others than a document.
    `together` is a rule about several fields. `settle` sets, in a struct without `build`, what
    follows from its fields.
    """
    checks = {name: rule.check for name, rule in rules.items()}

    def make(**fields: Any) -> msgspec.Struct:
        made = struct(**fields)
        if settle is not None:
            settle(made)
        return made

    check = check_of_object(checks, build or make, required=required, together=together)
    defaults = {field.name: _default(field) for field in msgspec.structs.fields(struct)}
    fields: list[Any] = [(name, rules[name].shape) for name in required]
    steps: list[tuple[str, Finish, Any]] = []
    for name, rule in rules.items():
        default = defaults.get(name)
        if name not in required:
            takes_null = default is None and rule.shape is not msgspec.Raw
            fields.append((name, rule.shape | None if takes_null else rule.shape, default))
        if rule.finish is not None:
            steps.append((name, rule.finish, default))
    unwritten = [(name, defaults[name]) for name in defaults if build is None and name not in rules]
    shape = msgspec.defstruct(
        f"{struct.__name__}Shape",
        fields,
        bases=(struct,) if build is None else (),
        forbid_unknown_fields=True,
        frozen=True,
        gc=struct.__struct_config__.gc,
    )
    return Rule(check, shape, _finisher(steps, unwritten, together, build, settle))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def check_of_object(
    checks: dict[str, Check],
    build: Callable[..., Any],
    *,
    required: tuple[str, ...] = (),
    together: Together | None = None,
) -> Check:
    """The check of an object; `build` gets the fields that are present as keyword arguments."""

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
            together(SimpleNamespace(**dict.fromkeys(checks) | fields), at, mistakes)
        return build(**fields) if len(mistakes) == before else None

    return check


def _finisher(
    steps: list[tuple[str, Finish, Any]],
    unwritten: list[tuple[str, Any]],
    together: Together | None,
    build: Callable[..., Any] | None,
    settle: Callable[[Any], None] | None,
) -> Finish:
    """The finish of an object: the fields that are present, in place. Steps have the field's name,
    its finish and its value where it is absent; fields that no document may have are `unwritten`,
    with their defaults.
    """

    def finish(decoded: Any) -> Any:
        for name, absent in unwritten:
            if getattr(decoded, name) != absent:
                raise UndecidedError
        for name, finish_value, absent in steps:
            value = getattr(decoded, name)
            if value is not absent:
                normal = finish_value(value)
                if normal is not value:
                    force_setattr(decoded, name, normal)
        if together is not None:
            mistakes = Mistakes()
            together(decoded, (), mistakes)
            if mistakes or mistakes.warnings:
                raise UndecidedError
        if settle is not None:
            settle(decoded)
        return decoded if build is None else build(**asdict(decoded))

    return finish


def _report_unknown(mistakes: Mistakes, at: Path, key: str, known: dict[str, Check]) -> None:
    hints = len(mistakes) < MAX_HINTS
    near = difflib.get_close_matches(key[:60].lower(), known, 1) if hints else []
    plain = key.isidentifier() and key.isascii() and len(key) <= 60
    more = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(known)}"
    report(mistakes, (at, key if plain else shown(key)), f"is not a known field{more}")
