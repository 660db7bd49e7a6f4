"""Generate data/taxonomies.json from a checkout of the IAB's repository (data/ATTRIBUTION.md).

python -m snapbid.reference.renew_taxonomies CHECKOUT VERSION
"""

import csv
import json
import sys
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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


def _mapping(
    path: Path, skipped: int, columns: tuple[int, int, int], of: Table, to: Table
) -> dict[str, str]:
    """Read one mapping file; return the target ids by id.

    `columns` are the indexes of three columns: the id, its name (-1 if there is none) and the
    target's id. If a row's name and id disagree, the name decides if it is unique in the taxonomy;
    otherwise the row is skipped, and the category has no mapping.
    """
    ids: dict[str, list[str]] = {}
    for id, (_, name) in of.items():
        ids.setdefault(name, []).append(id)
    mapped = {}
    for row in _rows(path, skipped):
        id, target = row[columns[0]], row[columns[2]]
        id = f"I{id}" if f"I{id}" in of else id  # "AB7"
        if columns[1] >= 0 and of.get(id, ("", ""))[1] != row[columns[1]]:
            named = ids.get(row[columns[1]], [])
            id = named[0] if len(named) == 1 else ""
        if id in of and target in to:
            mapped[id] = target
    return mapped


def _table(checkout: Path, kind: str, version: str, skipped: int, column: int) -> Table:
    path = checkout / f"{kind} Taxonomies" / f"{kind} Taxonomy {version}.tsv"
    rows = (row[column:] for row in _rows(path, skipped))
    return {id: (parent, name) for id, parent, name, *_ in rows if id}


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
                "2": _mapping(to_content, 1, (0, -1, 3), first, tables["2"]),
                "8": _mapping(to_product, 1, (0, -1, 3), first, tables["8"]),
            },
            "8": {"1": _mapping(from_product, 2, (1, 0, 6), tables["8"], first)},
        },
        "shared": [
            id for id, (_, name) in content_2.items() if content_3.get(id, ("", ""))[1] == name
        ],
    }


if __name__ == "__main__":
    content = make(Path(sys.argv[1]), sys.argv[2])
    _OUTPUT.write_text(json.dumps(content, indent=0, sort_keys=True) + "\n", encoding="utf-8")
