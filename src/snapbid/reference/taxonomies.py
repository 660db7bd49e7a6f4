"""Categories of ads: AdCOM's taxonomies (`cattax`) and the mappings between them (contract 3).

Versions of a taxonomy whose ids mean the same are a *family*, called by its first number. A key is
what a category is compared by: the category itself in Content Taxonomy 1.0, else with its family
before it.
"""

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

FAMILIES: Final = {1: 1, 2: 2, 5: 2, 6: 2, 3: 3, 4: 4, 7: 7, 9: 7, 8: 8}
"""Number in AdCOM's list of category taxonomies -> family. 1, 2 and 7 are the Content Taxonomy 1.0,
2.x and 3.x; 3 and 8 the Ad Product Taxonomy 1.x and 2.0; 4 is the Audience Taxonomy."""

_CACHED: Final = 100_000

Line = tuple[str, ...]  # the key of a category, then those of its ancestors


class Categories(NamedTuple):
    """A campaign's categories.

    `own`: their lines. `mapped`: the lines in another family, by its marker (the family's number
    and a colon); a family into which one of them cannot be mapped is missing.
    """

    family: int
    own: tuple[Line, ...]
    mapped: tuple[tuple[str, tuple[Line, ...]], ...]


@lru_cache(_CACHED)
def categories_of(cattax: int, categories: tuple[str, ...]) -> Categories:
    """Give the lines of categories from a taxonomy of AdCOM's list."""
    family = FAMILIES[cattax]
    mapped = []
    for other in _data()["mappings"].get(str(family), ()):
        lines = [_line(int(other), each) for each in map(_mapped_to(family, other), categories)]
        if lines and all(lines):
            mapped.append((f"{other}:", tuple(dict.fromkeys(lines))))
    return Categories(family, tuple(_line(family, each) for each in categories), tuple(mapped))


def mapped(cattax: int, other: int, category: str) -> str | None:
    """Map a category to another taxonomy of AdCOM's list; None if it cannot be."""
    family, wanted = FAMILIES.get(cattax), FAMILIES.get(other)
    if family == wanted:
        return category
    return _mapped_to(family, wanted)(category) or None


def _mapped_to(family: object, other: object) -> Any:
    table: dict[str, str] = _data()["mappings"].get(str(family), {}).get(str(other), {})
    return lambda category: table.get(category, "")


def _line(family: int, category: str) -> Line:
    """The keys of a category and its ancestors; empty for no category."""
    line = []
    while category:
        line.append(category if family == 1 else f"{family}:{category}")
        category = _parent(family, category)
    return tuple(line)


def _parent(family: int, category: str) -> str:
    if family == 1:
        parent, dash, _ = category.partition("-")
        return parent if dash else ""
    parent = _data()["parents"].get(str(family), {}).get(category, "")
    return str(parent)


@cache
def _data() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "taxonomies.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
