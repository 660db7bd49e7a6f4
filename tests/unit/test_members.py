"""Who is in which audience, as files that workers map (contract 12)."""

import random
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapbid.catalog import catalog, members
from snapbid.catalog._members import ENTRY_SIZE, MemberBook, Members, starts_of
from snapbid.catalog.catalog import CatalogError
from snapbid.catalog.members import ENTRY, NEVER, MemberBase, encode, open_members

KEY = b"k" * 16
AUDIENCES, PRODUCTS = {1: "one", 3: "three", 900: "many"}, {2: "casino", 4: "shop"}
NOW = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp() * 1000)
LATER, EARLIER = (members.until_of(datetime(2026, 6, d, tzinfo=UTC)) for d in (2, 1))
EDGES = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1)

Rows = dict[tuple[int, int], int]  # (member, audience) -> until


def section(rows: Rows) -> bytes:
    entries = b"".join(ENTRY.pack(*at, until) for at, until in sorted(rows.items()))
    return entries + starts_of(entries)


def opened(over: Rows, base: Rows | None = None) -> Members:
    more = () if base is None else (section(base), len(base))
    return Members(KEY, AUDIENCES, PRODUCTS, section(over), len(over), *more)


def expected(over: Rows, base: Rows, member: int) -> tuple[list[str], list[str]]:
    rows = base | over
    present = sorted(
        number for (who, number), until in rows.items()
        if who == member and (until == NEVER or until > LATER - 86_400)
    )  # fmt: skip
    return (
        [AUDIENCES[number] for number in present if number in AUDIENCES],
        [PRODUCTS[number] for number in present if number in PRODUCTS],
    )


@pytest.mark.parametrize("seed", range(30))
def test_any_members_are_found(seed: int) -> None:
    """Whatever is in base and overlay: the overlay's entry counts where both have one."""
    chance = random.Random(seed)
    ids = [
        *EDGES,
        *(chance.randint(-(2**63), 2**63 - 1) for _ in range(chance.choice([0, 5, 300]))),
    ]

    def rows(most: int) -> Rows:
        return {
            (chance.choice(ids), chance.choice([1, 2, 3, 4, 5, 900])):
            chance.choice([NEVER, LATER, EARLIER, 0])
            for _ in range(chance.randint(0, most))
        }  # fmt: skip

    over, base = rows(200), rows(2000)
    found = opened(over, base)
    assert len(found) == len(over) + len(base)
    for member in [*ids, 17, -17]:
        assert found.look_up(member, NOW) == expected(over, base, member), member


def test_ends_are_exact() -> None:
    found = opened({(7, 1): LATER})
    ends = int(datetime(2026, 6, 2, tzinfo=UTC).timestamp() * 1000)
    assert found.look_up(7, ends - 1) == (["one"], [])
    assert found.look_up(7, ends) == ([], [])


def test_infinity_never_ends() -> None:
    assert members.until_of(datetime.max.replace(tzinfo=UTC)) == NEVER
    assert opened({(7, 2): NEVER}).look_up(7, 2**62) == ([], ["casino"])


@pytest.mark.parametrize(
    "rows", [[(1, 1), (1, 1)], [(2, 1), (1, 1)], [(1, 2), (1, 1)], [(0, 1), (-1, 1)]]
)
def test_entries_ascend(rows: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        starts_of(b"".join(ENTRY.pack(*at, 1) for at in rows))


def test_malformed_sections_are_refused() -> None:
    whole = section({(1, 1): 1})
    for data, count in ((whole[:-1], 1), (whole, 0), (whole, 2), (b"\0" * len(whole), 1), (b"", 0)):
        with pytest.raises(ValueError, match="not a valid section"):
            Members(KEY, {}, {}, data, count)
    with pytest.raises(ValueError, match="16 bytes"):
        Members(b"short", {}, {}, whole, 1)
    with pytest.raises(ValueError, match="not a valid section"):
        starts_of(b"\0" * (ENTRY_SIZE + 1))


# -- files ----------------------------------------------------------------------------------------


def written(path: Path, over: Rows, base: MemberBase | None = None) -> None:
    changed = [(*at, until) for at, until in sorted(over.items())]
    catalog.write(path, encode(KEY, AUDIENCES, PRODUCTS, changed, base))


def base_file(folder: Path, rows: Rows) -> MemberBase:
    data = section(rows)
    (folder / "members-1").write_bytes(data)
    return MemberBase("members-1", len(rows), zlib.crc32(data), 1, "w", 0.0)


def test_a_file_with_its_base(tmp_path: Path) -> None:
    base = base_file(tmp_path, {(1, 1): NEVER, (2, 2): NEVER, (3, 3): NEVER})
    written(tmp_path / "members", {(2, 2): 0, (4, 1): NEVER}, base)
    first = open_members(tmp_path / "members")
    assert [first.members.look_up(n, NOW) for n in range(1, 5)] == [
        (["one"], []), ([], []), (["three"], []), (["one"], [])]  # fmt: skip
    written(tmp_path / "members", {}, base)
    second = open_members(tmp_path / "members", first)
    assert second.mapped is first.mapped
    assert second.members.look_up(2, NOW) == ([], ["casino"])


def test_an_empty_file(tmp_path: Path) -> None:
    written(tmp_path / "members", {})
    assert open_members(tmp_path / "members").members.look_up(0, NOW) == ([], [])
    written(tmp_path / "members", {}, base_file(tmp_path, {}))
    assert open_members(tmp_path / "members").members.look_up(0, NOW) == ([], [])


@pytest.mark.parametrize("at", [0, 9, 25, -20, -1])
def test_damage_is_seen(tmp_path: Path, at: int) -> None:
    path = tmp_path / "members"
    written(path, {(1, 1): NEVER})
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CatalogError):
        open_members(path)


def test_a_damaged_base_is_seen(tmp_path: Path) -> None:
    base = base_file(tmp_path, {(1, 1): NEVER})
    written(tmp_path / "members", {}, base)
    (tmp_path / base.name).write_bytes(b"\0" * 28)
    with pytest.raises(CatalogError, match="damaged"):
        open_members(tmp_path / "members")
    (tmp_path / base.name).unlink()
    with pytest.raises(FileNotFoundError):
        open_members(tmp_path / "members")


def test_a_book_has_the_members_in_force() -> None:
    book = MemberBook()
    assert book.current is None
    mine = opened({})
    book.use(mine)
    assert book.current is mine
