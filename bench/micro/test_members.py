"""Looks up members in a file of ten million, so many and at random that caches do not help.

`nothing` looks up in an empty file, at the cost of the same call; the difference is the search.
"""

import random
from array import array
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from snapbid.catalog import catalog
from snapbid.catalog._members import Members, starts_of
from snapbid.catalog.members import NEVER

MEMBERS = 10_000_000
ASKED = 200_000
SPAN = 2**64

Each = Callable[[Callable[..., Any], Iterable[Any]], None]


@cache
def entries() -> bytes:
    """Build the entries of members at equal distances."""
    rows = array("Q", bytes(16 * MEMBERS))
    rows[0::2] = array("Q", range(0, SPAN, SPAN // MEMBERS))[:MEMBERS]
    rows[1::2] = array("Q", [1 << 32 | NEVER]) * MEMBERS
    rows.byteswap()
    made = bytearray(rows.tobytes())
    made[0::16] = bytes(byte ^ 0x80 for byte in made[0::16])  # in the order of signed integers
    return bytes(made)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Members:
    path: Path = tmp_path_factory.mktemp("members") / "base"
    starts = starts_of(entries())
    path.write_bytes(entries() + starts)
    assert path.stat().st_size < 200_000_000
    empty = starts_of(b"")
    return Members(b"k" * 16, {1: "one"}, {}, empty, 0, catalog.map_file(path), MEMBERS)


@pytest.mark.parametrize("what", ["present", "absent", "nothing"])
def test_look_up(each: Each, many: Members, what: str) -> None:
    step = SPAN // MEMBERS
    offset = 0 if what == "present" else 1
    asked = [random.randrange(MEMBERS) * step + offset - SPAN // 2 for _ in range(ASKED)]
    none = Members(b"k" * 16, {1: "one"}, {}, starts_of(b""), 0)
    subject = none if what == "nothing" else many
    each(lambda member: subject.look_up(member, 0), asked)
