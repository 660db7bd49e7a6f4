"""Categories between taxonomies, for the oracle (contract 3, `bcat`, `acat` and `cattax`).

What the IAB publishes is read from the product's data, as lists of ids; the rules are plain here:
what a request lists is mapped forth, with all below it, where the product turns that round.
"""

import json
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[2] / "src" / "snapbid" / "reference" / "data" / "taxonomies.json"
FAMILY = {1: 1, 2: 2, 5: 2, 6: 2, 3: 3, 4: 4, 7: 7, 9: 7, 8: 8}
VENDORS = 500

# What stands between pasted categories, which may have blanks in them.
BETWEEN = re.compile(r"""[\t\n\r;|"'<>\u2018-\u201e]| (?=[iI])""")

Tables = dict[tuple[int, int], dict[str, str]]


class Lists(NamedTuple):
    """The entries of `bcat` and `acat`, in a taxonomy of AdCOM's list or a vendor's."""

    cattax: int
    bcat: list[str]
    acat: list[str]


@cache
def parents() -> dict[int, dict[str, str]]:
    """Give every category and its parent, by family."""
    return {int(family): table for family, table in json.loads(DATA.read_text())["parents"].items()}


@cache
def tables() -> Tables:
    """Give the mappings: the published ones, and ids that 2.2 and 3.1 share."""
    content = json.loads(DATA.read_text())
    found: Tables = {}
    for family, others in content["mappings"].items():
        for other, table in others.items():
            found[int(family), int(other)] = table
    found[2, 7] = found[7, 2] = {id: id for id in content["shared"]}
    found[1, 7] = {id: to for id, to in found[1, 2].items() if to in content["shared"]}
    return found


@cache
def spellings(family: int) -> dict[str, str]:
    """Give the categories of a family by their ids in capitals."""
    return {id.upper(): id for id in parents().get(family, ())}


def spelled(family: int, category: str) -> str | None:
    """Find a category of a family, however it is spelled."""
    return spellings(family).get(plain(category))


def pasted(entries: list[str]) -> list[str]:
    """Take lists apart that somebody pasted into one entry."""
    return [part for entry in entries for part in BETWEEN.split(entry) if part.strip()]


@cache
def plain(category: str) -> str:
    """Give a category without case, white space and a dash after IAB."""
    written = unicodedata.normalize("NFKC", re.sub("[\u2010-\u2015]", "-", category))
    written = "".join(written.split()).upper()
    if not written.startswith("IAB"):
        return written
    numbers = [each for each in re.split("[-_]", written[3:]) if each] or [""]
    if all(number.isdecimal() and number.isascii() for number in numbers):
        numbers = [number.lstrip("0") or "0" for number in numbers]
    return "IAB" + "-".join(numbers)


def line(family: int, category: str) -> set[str]:
    """A category and all above it."""
    found = set()
    while category:
        found.add(category)
        category = parents()[family][category]
    return found


@cache
def below(family: int, category: str) -> frozenset[str]:
    """A category and all below it."""
    return frozenset(id for id in parents()[family] if category in line(family, id))


def refusing(cattax: int, categories: list[str], asked: Lists) -> set[str]:
    """Name the lists that refuse a campaign's categories: `bcat`, `acat`."""
    given = {name for name in ("bcat", "acat") if getattr(asked, name)}
    if not categories or not given:
        return given - {"bcat"} if not categories else set()
    if cattax >= VENDORS or asked.cattax >= VENDORS:
        return vendors(cattax, categories, asked) if cattax == asked.cattax else given
    family, other = FAMILY[cattax], FAMILY.get(asked.cattax, 0)
    own = [spelled(family, each) for each in categories]
    blocked = [blocked_by(other, each) for each in asked.bcat]
    if None in own or other == 0:
        return given
    if None in blocked:
        return {"bcat"} | judged(family, own, other, asked, set())
    return judged(family, own, other, asked, {each for each in blocked if each})


def blocked_by(family: int, entry: str) -> str | None:
    """What an entry of `bcat` blocks; an unknown one below a category is a part of that."""
    if family == 1 and spelled(1, entry) is None:
        first, dash, rest = plain(entry).removeprefix("IAB").partition("-")
        if dash and rest.isdecimal() and 0 < int(rest) < 64:
            return spelled(1, f"iab{first}")
    return spelled(family, entry)


def judged(
    family: int, own: list[str | None], other: int, asked: Lists, blocked: set[str]
) -> set[str]:
    """The same for a campaign whose categories are known."""
    allowed = {id for each in asked.acat if (id := spelled(other, each)) is not None}
    forth, back = tables().get((family, other), {}), tables().get((other, family))
    if family == other:
        lines, unmapped = [line(family, str(id)) for id in own], False
    elif all(id in forth for id in own):
        lines, unmapped = [line(other, forth[str(id)]) for id in own], False
    elif back is not None:
        lines = [line(family, str(id)) for id in own]
        meant = set[str]().union(*(below(other, id) for id in blocked))
        unmapped = not meant <= back.keys()
        blocked = {back[id] for id in meant if id in back}
        allowed = {back[id] for each in allowed for id in below(other, each) if id in back}
    else:
        return {name for name in ("bcat", "acat") if getattr(asked, name)}
    refused = set()
    if asked.bcat and (unmapped or any(each & blocked for each in lines)):
        refused.add("bcat")
    if asked.acat and not all(each & allowed for each in lines):
        refused.add("acat")
    return refused


def vendors(cattax: int, categories: list[str], asked: Lists) -> set[str]:
    """The same in a vendor's taxonomy, of which nothing is known but the ids."""
    refused = set()
    own, bcat, acat = (
        {each.strip().lower() for each in ids} for ids in (categories, asked.bcat, asked.acat)
    )
    if own & bcat:
        refused.add("bcat")
    if acat and not own <= acat:
        refused.add("acat")
    return refused
