"""Generate data/taxonomies.json from a checkout of the IAB's repository (data/ATTRIBUTION.md).

python -m snapbid.reference.renew_taxonomies CHECKOUT VERSION
"""

import csv
import json
import sys
from collections import ChainMap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_CONTENT, _PRODUCTS, _AUDIENCE = "Content", "Ad Product", "Audience"
# Family (see taxonomies.py) -> its tables, newest version first: kind, version, lines above the
# table, and the column of the id, which those of the parent and the name follow.
_TABLES: Final = {
    "2": [(_CONTENT, version, 2, 0) for version in ("2.2", "2.1", "2.0")],
    "3": [(_PRODUCTS, version, 1, 0) for version in ("1.1", "1.0")],
    "4": [(_AUDIENCE, version, 1, 1) for version in ("1.1", "1.0")],
    "7": [(_CONTENT, version, 2, 0) for version in ("3.1", "3.0", "3.0 Descriptive Vectors")],
    "8": [(_PRODUCTS, "2.0", 1, 0)],
}
_CONTENT_1: Final = "Content Taxonomies/Content Taxonomy 1.0.tsv"
_OUTPUT: Final = Path(__file__).parent / "data" / "taxonomies.json"

Table = dict[str, tuple[str, str]]  # id -> parent's id, name


def _rows(path: Path, skipped: int) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t")):
            if number >= skipped:
                yield [*map(str.strip, row), *[""] * 12]


class _Columns(NamedTuple):
    """The columns of a category's id, and of the names of its ancestors and of itself."""

    id: int
    names: tuple[int, ...]  # the last one that is not empty is the category's own


def _mapping(
    path: Path, skipped: int, source: _Columns, target: _Columns, of: Table, to: Table
) -> dict[str, str]:
    """Read one mapping file; return the target ids by source id.

    If the name and the id of a category disagree, the name decides, provided that exactly one
    category of the taxonomy has that name. If none or several have it, a target is found by its id,
    since the wording of names varies, but a source gets no mapping.
    """
    mapped = {}
    for row in _rows(path, skipped):
        id, to_id = row[source.id], row[target.id]
        id = f"I{id}" if f"I{id}" in of else id  # "AB7"
        if source.names and _name(row, source) != of.get(id, ("", ""))[1]:
            id = _named(_name(row, source), of) or ""
        if to_id in to and _name(row, target) != to[to_id][1]:
            to_id = _named(_name(row, target), to) or to_id
        if id in of and to_id in to:
            mapped[id] = to_id
    return mapped


def _name(row: Sequence[str], columns: _Columns) -> str:
    return next((row[n] for n in reversed(columns.names) if row[n]), "")


def _named(name: str, table: Table) -> str | None:
    """Return the id of the category with this name; None unless there is exactly one."""
    ids = [id for id, (_, its_name) in table.items() if its_name == name]
    return ids[0] if len(ids) == 1 else None


def _table(checkout: Path, kind: str, version: str, skipped: int, column: int) -> Table:
    path = checkout / f"{kind} Taxonomies" / f"{kind} Taxonomy {version}.tsv"
    rows = (row[column:] for row in _rows(path, skipped))
    return {id: (parent, name) for id, parent, name, *_ in rows if id}


_BY_ID: Final = _Columns(0, ())


def make(checkout: Path, version: str) -> dict[str, object]:
    """Build the content of data/taxonomies.json."""
    versions = {
        family: [_table(checkout, *table) for table in tables] for family, tables in _TABLES.items()
    }
    tables: dict[str, Table] = {
        family: dict(ChainMap(*newest_first)) for family, newest_first in versions.items()
    }
    tables["1"] = {
        row[0]: (row[0].partition("-")[0], row[2])
        for row in _rows(checkout / _CONTENT_1, 1)
        if row[0]
    }
    folder = checkout / "Taxonomy Mappings"
    to_content = folder / "Content 1.0 to Content 2.0.tsv"
    to_product = folder / "Content 1.0 to Ad Product 2.0.tsv"
    from_product = folder / "Ad Product 2.0 to Content 1.0.tsv"
    first, content_2, content_3 = tables["1"], versions["2"][0], versions["7"][0]
    return {
        "source": "https://github.com/InteractiveAdvertisingBureau/Taxonomies",
        "version": version,
        "license": "IAB Technology Laboratory, Creative Commons Attribution 3.0",
        "parents": {
            family: {
                id: parent if parent in table and parent != id else ""
                for id, (parent, _) in table.items()
            }
            for family, table in tables.items()
        },
        "mappings": {
            "1": {
                "2": _mapping(to_content, 1, _BY_ID, _Columns(3, (5,)), first, tables["2"]),
                "8": _mapping(to_product, 1, _BY_ID, _Columns(3, (4, 5, 6)), first, tables["8"]),
            },
            "8": {
                "1": _mapping(
                    from_product, 2, _Columns(1, (0,)), _Columns(6, (5,)), tables["8"], first
                )
            },
        },
        "shared": [
            id for id, (_, name) in content_2.items() if content_3.get(id, ("", ""))[1] == name
        ],
    }


if __name__ == "__main__":
    content = make(Path(sys.argv[1]), sys.argv[2])
    _OUTPUT.write_text(json.dumps(content, indent=0, sort_keys=True) + "\n", encoding="utf-8")
