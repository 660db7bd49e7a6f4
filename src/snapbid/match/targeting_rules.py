"""The rules of `targeting` in a campaign document (contract 2 and 3).

They follow from `vocabulary.DIMENSIONS`; only what is said of a wrong entry stands here.
"""

from functools import partial
from typing import Annotated, Any, Final, Union

from msgspec import Meta
from msgspec.structs import force_setattr

from snapbid.match import codes
from snapbid.match.campaign import Circle, Values
from snapbid.match.domains import MAX_TEXT
from snapbid.match.rules import (
    Check,
    Mistakes,
    Path,
    Remembered,
    Rule,
    UndecidedError,
    check_of_object,
    list_of,
    object_of,
    report,
    shown,
)
from snapbid.match.value_rules import integral, real, text_rule
from snapbid.match.vocabulary import DIMENSIONS, MAX_INTEGER, Dimension, normalise

MAX_ENTRIES: Final = 1_000_000  # of all lists together
MAX_DEALS: Final = 10_000
MAX_CIRCLES: Final = 1_000  # each is compared with a request's location
MAX_KM: Final = 50_000

# The rule of a dimension that an entry breaks.
_ENTRY_RULES: Final = {
    **{
        name: f"is not an integer from 0 to {MAX_INTEGER}, nor one of {', '.join(names)}"
        for name, names in codes.NAMES.items()
    },
    "country": "is not an ISO 3166-1 country",
    "region": "is not a country, a dash and a region, such as USA-CA",
    "os": "is not one of ios, android, windows, macos, linux, chromeos, tizen, webos, other",
    "browser": "is not one of chrome, safari, firefox, edge, samsung, opera, other",
    "language": "is not a language",
    "inventory": "is not one of site, app, dooh",
    "domain": "is not a domain",
    "placement": "is not a placement of video, an integer, or of native, such as n1, nor one of "
    + ", ".join(codes.PLACEMENTS),
    "rewarded": "is not 0 or 1",
    "interstitial": "is not 0 or 1",
    "hour": "is not an hour of the week, 0 (Monday 00:00 UTC) to 167",
}


# -- naming every mistake -------------------------------------------------------------------------


def _check_of(dimension: Dimension) -> Check:
    """The check of a dimension's two lists."""
    name = dimension.name

    def check(value: Any, at: Path, mistakes: Mistakes) -> Any:
        normal = normalise(name, value if dimension.kind == "text" else integral(value))
        if normal is None:
            report(mistakes, at, _entry_rule(dimension, value))
        return normal

    entries = list_of(Rule(check, str | int), _most(name)).check
    return check_of_object({"include": entries, "exclude": entries}, Values)


def _most(dimension: str) -> int:
    return MAX_DEALS if dimension == "deal" else MAX_ENTRIES


def _entry_rule(dimension: Dimension, value: object) -> str:
    rule = _ENTRY_RULES.get(dimension.name)
    if dimension.kind != "text":
        return f"{rule}: {shown(value)}"
    if not rule and text_rule(value) is None:
        return f"must have at most {MAX_TEXT} bytes in lower case: {shown(value)}"
    return text_rule(value) or f"{rule}: {shown(value)}"


def _entries_are_few_enough(targeting: Any, at: Path, mistakes: Mistakes) -> None:
    entries = 0
    for values in vars(targeting).values():
        if isinstance(values, Values):
            entries += len(values.include) + len(values.exclude)
    if entries > MAX_ENTRIES:
        report(mistakes, at, f"must have at most {MAX_ENTRIES} entries, found {entries}")


def _without_empty(**targeting: Any) -> dict[str, Any]:
    return {
        name: values
        for name, values in targeting.items()
        if not isinstance(values, Values) or values.include or values.exclude
    }


# -- the quick way --------------------------------------------------------------------------------

_Entries = Annotated[tuple[str | int, ...], Meta(max_length=MAX_ENTRIES)]


class _ValuesShape(Values, frozen=True, gc=False, forbid_unknown_fields=True):
    include: _Entries = ()
    exclude: _Entries = ()


class _NormalForms(Remembered):
    """The normal forms of a dimension's entries; `own` has the entries that are their own."""

    def __init__(self, dimension: str) -> None:
        super().__init__(partial(normalise, dimension))
        self._most = _most(dimension)
        self._own: set[str | int] = set()

    def __missing__(self, entry: str | int) -> Any:
        form = super().__missing__(entry)
        if len(self) == 1:  # what was remembered has been forgotten
            self._own.clear()
        if form == entry:
            self._own.add(entry)
        return form

    def of(self, entries: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """Normalise a list, each distinct form once, in order."""
        if len(entries) > self._most:
            raise UndecidedError
        if len(self._own.intersection(entries)) == len(entries):
            return entries  # all different, each its own
        return tuple(dict.fromkeys(map(self.__getitem__, entries)))


def _finish(targeting: dict[str, Any]) -> dict[str, Any]:
    empty: tuple[str, ...] = ()
    for name, values in targeting.items():
        if type(values) is _ValuesShape and name in _NORMAL_FORMS:
            normal_forms = _NORMAL_FORMS[name]
            include, exclude = values.include, values.exclude
            if include:
                if (normal := normal_forms(include)) is not include:
                    force_setattr(values, "include", normal)
            elif not exclude:
                empty += (name,)
            if exclude and (normal := normal_forms(exclude)) is not exclude:
                force_setattr(values, "exclude", normal)
        elif type(values) is tuple and name == "geo_radius":
            targeting[name] = _finish_circles(values)
        else:
            raise UndecidedError
    for name in empty:
        del targeting[name]
    return targeting


_CIRCLES: Final = list_of(
    object_of(
        {
            "lat": real(lambda n: -90 <= n <= 90, "from -90 to 90"),
            "lon": real(lambda n: -180 <= n <= 180, "from -180 to 180"),
            "km": real(lambda n: 0 < n <= MAX_KM, f"over 0 and up to {MAX_KM}"),
        },
        Circle,
        required=("lat", "lon", "km"),
    ),
    MAX_CIRCLES,
)
assert _CIRCLES.finish is not None
_finish_circles: Final = _CIRCLES.finish
_NORMAL_FORMS: Final = {d.name: _NormalForms(d.name).of for d in DIMENSIONS}
_CHECKS: Final = {d.name: _check_of(d) for d in DIMENSIONS} | {"geo_radius": _CIRCLES.check}

TARGETING: Final = Rule(
    check_of_object(_CHECKS, _without_empty, together=_entries_are_few_enough),
    dict[str, Union[_ValuesShape, _CIRCLES.shape]],  # type: ignore[name-defined]  # noqa: UP007
    _finish,
)
"""Values by dimension, and circles as `geo_radius`."""
