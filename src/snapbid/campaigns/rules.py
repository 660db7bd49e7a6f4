"""Building blocks for the rules of a campaign document: checks, lists and objects.

A rule is a check that reports every mistake in a value. Two rules apply everywhere:

- `null` and an empty list mean absent;
- an unknown key is a mistake.
"""

import difflib
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from snapbid.campaigns.campaign import CampaignMistake

MAX_LIST: Final = 1_000  # items of a list, unless stated otherwise
MAX_HINTS: Final = 100  # after so many mistakes in a document, spellings are no longer suggested

Path: TypeAlias = tuple[Any, ...]
"""The path of a value: `(path of the parent, key or index)`, or `()` for the document. It is only
formatted to report a mistake."""


class Mistakes(list[CampaignMistake]):
    """The mistakes that make a document invalid, and the `warnings`, which do not."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[CampaignMistake] = []


Check: TypeAlias = Callable[[Any, Path, Mistakes], Any]
"""A function that takes a decoded JSON value, adds its mistakes and warnings, and returns its
normal form, which is valid only if there was no mistake."""

Together: TypeAlias = Callable[[Any, Path, Mistakes], None]
"""A rule about several values: the normal forms of a list's items, or of an object's fields as
attributes. A value that is absent or has a mistake is None."""

Fields: TypeAlias = dict[str, Any]  # an object's fields that are present, normalised


def report(mistakes: Mistakes, at: Path, rule: str) -> None:
    """Add a mistake at a path."""
    mistakes.append(CampaignMistake(path_text(at), rule))


def warn(mistakes: Mistakes, at: Path, rule: str) -> None:
    """Add a warning at a path."""
    mistakes.warnings.append(CampaignMistake(path_text(at), rule))


def path_text(at: Path) -> str:
    """Format a path as `targeting.country.include[3]`."""
    text = ""
    while at:
        at, key = at
        text = (f"[{key}]" if isinstance(key, int) else f".{key}") + text
    return text.removeprefix(".")


def shown(value: object) -> str:
    """Quote a value for a message, on one line and shortened."""
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
    check_item: Check,
    most: int = MAX_LIST,
    *,
    distinct: bool = True,
    unique: str | None = None,
    together: Together | None = None,
) -> Check:
    """Build a check of lists with up to `most` items, each checked by `check_item`.

    With `distinct`, repeated values are dropped. `unique`: a field whose value no two objects may
    share. `together`: a rule about all items together.
    """

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

    return check


def _report_repeated(mistakes: Mistakes, at: Path, field: str, objects: list[Any]) -> None:
    first_with: dict[str, int] = {}
    for index, item in enumerate(objects):
        name = item.get(field) if isinstance(item, dict) else None
        if isinstance(name, str) and first_with.setdefault(name, index) != index:
            first = path_text((at, first_with[name]))
            report(
                mistakes, ((at, index), field), f"is already the {field} of {first}: {shown(name)}"
            )


def object_of(
    checks: dict[str, Check],
    build: Callable[..., Any],
    *,
    required: tuple[str, ...] = (),
    together: Together | None = None,
) -> Check:
    """Build a check of objects with the fields of `checks`.

    The check passes the fields that are present to `build`, as keyword arguments, and returns the
    result; None if there is a mistake. `together`: a rule about several fields.
    """
    absent = dict.fromkeys(checks)

    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        if not isinstance(value, dict):
            report(mistakes, at, f"must be an object, found {shown(value)}")
            return None
        before = len(mistakes)
        fields: Fields = {}
        for key, item in value.items():
            check_field = checks.get(key)
            if check_field is None:
                _report_unknown(mistakes, at, str(key), checks)
            elif item is not None and item != []:
                fields[key] = check_field(item, (at, key), mistakes)
        for key in required:
            if key not in fields:
                report(mistakes, (at, key), "is required")
        if together is not None:
            together(SimpleNamespace(**absent | fields), at, mistakes)
        return build(**fields) if len(mistakes) == before else None

    return check


def _report_unknown(mistakes: Mistakes, at: Path, key: str, known: dict[str, Check]) -> None:
    hints = len(mistakes) < MAX_HINTS
    near = difflib.get_close_matches(key[:60].lower(), known, 1) if hints else []
    plain = key.isidentifier() and key.isascii() and len(key) <= 60
    more = f'; did you mean "{near[0]}"?' if near else f"; known fields: {', '.join(known)}"
    report(mistakes, (at, key if plain else shown(key)), f"is not a known field{more}")
