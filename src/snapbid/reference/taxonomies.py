"""Categories of ads: AdCOM's taxonomies (`cattax`) and the mappings between them (contract 3).

Versions of a taxonomy with compatible ids form a *family*, which has the number of the first one.
Categories are compared by key: the category itself in Content Taxonomy 1.0, otherwise prefixed with
its family.

A campaign's categories are compared with a request's list in the request's taxonomy, if the IAB
publishes a mapping into it. If there is only the reverse mapping, it is applied to each category in
the request's list and to all its descendants. To make this a lookup, that mapping is inverted once
per campaign: each of the campaign's categories is replaced with the categories of the request's
taxonomy that map to it.
"""

import json
import re
from array import array
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

FAMILIES: Final = {1: 1, 2: 2, 5: 2, 6: 2, 3: 3, 4: 4, 7: 7, 9: 7, 8: 8}
"""The family of each number in AdCOM's list of category taxonomies. 1, 2 and 7 are the Content
Taxonomy 1.0, 2.x and 3.x; 3 and 8 the Ad Product Taxonomy 1.x and 2.0; 4 is the Audience Taxonomy.
"""

NAMES: Final = {
    1: "Content Taxonomy 1.0",
    2: "Content Taxonomy 2.x",
    7: "Content Taxonomy 3.x",
    3: "Ad Product Taxonomy 1.x",
    8: "Ad Product Taxonomy 2.0",
    4: "Audience Taxonomy 1.x",
}
"""Names of the families, by number."""

VENDORS: Final = 500
"""Numbers from here on are vendors' own taxonomies, the same for all who use the number."""

OF_VENDORS: Final = 14
UNKNOWN: Final = 15
"""Families that only campaigns have: OF_VENDORS for a vendor's taxonomy, and UNKNOWN for categories
missing from their own taxonomy, which any list of categories in a request refuses."""

KNOWN: Final = 1
"""A flag of every known category. A flag `1 << family` means that the category, or one below it,
has no counterpart in that family, although there are mappings into it."""

MAX_FIRST: Final = 32
MAX_SECOND: Final = 64
"""Bounds on the two numbers in a category of the Content Taxonomy 1.0, such as IAB17-44."""

_CACHED: Final = 100_000
_IAB: Final = "IAB"
_ZEROS: Final = re.compile(r"(?<!\d)0+(?=\d)", re.ASCII)  # leading zeros

Line = tuple[str, ...]  # the key of a category, then those of its ancestors


class Categories(NamedTuple):
    """A campaign's categories, each as a tuple of its key and the keys of its ancestors.

    `own`: the categories in their own family of taxonomies, whose number is `family`. `mapped` and
    `listed` contain pairs of another family's marker (its number and a colon) and the corresponding
    categories in that family. A family into which all of `own` map is in `mapped`; any other that
    maps into `family` is in `listed`, with a group of categories for each of `own`.
    """

    family: int
    own: tuple[Line, ...]
    mapped: tuple[tuple[str, tuple[Line, ...]], ...] = ()  # families into which all map
    listed: tuple[tuple[str, tuple[tuple[Line, ...], ...]], ...] = ()
    # families with only a mapping back: for each category, the lines that count as it


@lru_cache(_CACHED)
def categories_of(cattax: int, categories: tuple[str, ...]) -> Categories:
    """Return the Categories of a campaign with these category ids.

    `cattax`: the number of their taxonomy, one of AdCOM's or a vendor's own.
    """
    if cattax >= VENDORS:
        vendors: tuple[Line, ...] = tuple((f"{cattax}:{each.lower()}",) for each in categories)
        return Categories(OF_VENDORS, vendors, ((f"{cattax}:", vendors),) if vendors else ())
    family = FAMILIES[cattax]
    ids = [normal(cattax, each) for each in categories]
    if None in ids:
        return Categories(UNKNOWN, tuple((f"{UNKNOWN}:{each}",) for each in categories))
    own = tuple(_line(family, str(each)) for each in ids)
    mapped: list[tuple[str, tuple[Line, ...]]] = []
    listed: list[tuple[str, tuple[tuple[Line, ...], ...]]] = []
    for other in FAMILIES.values() if own else ():
        table = _mappings().get((family, other), {})
        if table and all(each in table for each in ids):
            lines = (_line(other, table[str(each)]) for each in ids)
            mapped.append((f"{other}:", tuple(dict.fromkeys(lines))))
        elif (other, family) in _mappings():
            means = _sources(other, family)
            groups = (
                tuple(_line(other, source) for key in line for source in means.get(key, ()))
                for line in own
            )
            listed.append((f"{other}:", tuple(dict.fromkeys(groups))))
    return Categories(family, own, tuple(dict.fromkeys(mapped)), tuple(dict.fromkeys(listed)))


def normal(cattax: int, category: str) -> str | None:
    """Return a category as its taxonomy spells it; None if the taxonomy lacks it.

    Ignores case, white space and anything else that `spelled` ignores. A vendor's category is not
    looked up, only stripped of surrounding white space.
    """
    if cattax >= VENDORS:
        return category.strip() or None
    return _spellings().get(FAMILIES.get(cattax, 0), {}).get(spelled(category).lower())


def is_published(category: str) -> bool:
    """Return whether any of the taxonomies has a category, in any spelling."""
    return any(normal(family, category) is not None for family in NAMES)


def spelled(category: str) -> str:
    """Return a category in upper case without white space, such as `IAB3-1`.

    After `IAB`, also drop a dash and leading zeros, and replace underscores with dashes.
    """
    written = "".join(category.split()).upper()
    if not written.startswith(_IAB):
        return written
    return _IAB + _ZEROS.sub("", written.removeprefix(_IAB).replace("_", "-").lstrip("-"))


@cache
def first_flags() -> bytes:
    """Return the flags (see `KNOWN`) of Content Taxonomy 1.0's categories, as an array of uint16.

    IAB17-44 is at index 17 * MAX_SECOND + 44; 0 means that there is no such category.
    """
    flags = array("H", bytes(2 * MAX_FIRST * MAX_SECOND))
    for id in _parents()[1]:
        first, _, second = id.removeprefix("IAB").partition("-")
        flags[int(first) * MAX_SECOND + int(second or 0)] = _flags(1, id)
    return flags.tobytes()


@cache
def listed() -> dict[int, dict[str | int, tuple[str, int]]]:
    """Return keys and flags (see `KNOWN`) of all categories outside Content Taxonomy 1.0.

    The result is by family and id. An id is listed as published and in lower case, and also as an
    integer if it is a number.
    """
    found: dict[int, dict[str | int, tuple[str, int]]] = {}
    for family, parents in _parents().items():
        if family != 1:
            own = found[family] = {}
            for id in parents:
                entry = f"{family}:{id}", _flags(family, id)
                own[id] = own[id.lower()] = entry
                if id.isdecimal():
                    own[int(id)] = entry
    return found


def counts() -> dict[tuple[int, int], tuple[int, int, int]]:
    """Count comparable categories, by the taxonomy families of a campaign and of a request.

    Each value has three counts of categories in the campaign's family: those comparable through a
    mapping, those comparable only through an inverted mapping, and all categories.
    """
    table = {}
    for family, other in product(NAMES, repeat=2):
        ids = _parents()[family]
        mapped = ids if family == other else _mappings().get((family, other), {})
        found = 0
        if family != other and (other, family) in _mappings():
            means = _sources(other, family)
            lines = (_line(family, id) for id in ids if id not in mapped)
            found = sum(any(key in means for key in line) for line in lines)
        table[family, other] = len(mapped), found, len(ids)
    return table


def _flags(family: int, id: str) -> int:
    flags = KNOWN
    for (of, other), table in _mappings().items():
        if of == family and not all(each in table for each in _below(family)[id]):
            flags |= 1 << other
    return flags


def _line(family: int, category: str) -> Line:
    """Return the key of a category, followed by the keys of its ancestors."""
    line = []
    while category:
        line.append(_key(family, category))
        category = _parents()[family][category]
    return tuple(line)


def _key(family: int, category: str) -> str:
    return category if family == 1 else f"{family}:{category}"


@cache
def _data() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "taxonomies.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@cache
def _parents() -> dict[int, dict[str, str]]:
    """Return, by family, the parent of each category; "" for a top-level category."""
    return {int(family): parents for family, parents in _data()["parents"].items()}


@cache
def _mappings() -> dict[tuple[int, int], dict[str, str]]:
    """Return, by pair of families, a map from categories of the first to those of the second.

    An id with the same name in the Content Taxonomies 2.2 and 3.1 is the same category in both.
    """
    published = {
        (int(family), int(other)): table
        for family, tables in _data()["mappings"].items()
        for other, table in tables.items()
    }
    shared = {id: id for id in _data()["shared"]}
    onward = {id: found for id, found in published[1, 2].items() if found in shared}
    return published | {(2, 7): shared, (7, 2): shared, (1, 7): onward}


@cache
def _sources(family: int, other: int) -> dict[str, list[str]]:
    """Invert the mapping from `family` to `other`: map the key of each category to its sources."""
    sources: dict[str, list[str]] = {}
    for source, found in _mappings()[family, other].items():
        sources.setdefault(_key(other, found), []).append(source)
    return sources


@cache
def _below(family: int) -> dict[str, list[str]]:
    """Map each category of a family to a list of itself and all its descendants."""
    below: dict[str, list[str]] = {}
    for id in _parents()[family]:
        above = id
        while above:
            below.setdefault(above, []).append(id)
            above = _parents()[family][above]
    return below


@cache
def _spellings() -> dict[int, dict[str, str]]:
    """Return the official spelling of each lower-case category, by family of taxonomies."""
    return {family: {id.lower(): id for id in parents} for family, parents in _parents().items()}
