"""The catalog's file: what is written is read back, and nothing else is taken for one."""

import gc
import weakref
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.snapshot import builder_of, numbered

from snapbid.catalog._builder import Builder
from snapbid.catalog.catalog import Base, Catalog, CatalogError, Head, Index, encode, write
from snapbid.catalog.payload import decode_payload
from snapbid.reference.rates import Rates

RATES = Rates({"USD": Fraction(1), "JPY": Fraction(1, 150)}, date(2026, 3, 4))
SSPS = {"acme": "acme", "acme-eu": "acme", "é": "é"}


def document(id: str, cpm: float, **members: Any) -> dict[str, Any]:
    creative = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "é"}
    common = {"id": id, "advertiser": "brand.example", "cpm": cpm, "creatives": [creative]}
    return {**common, **members}


def index_of(*documents: dict[str, Any]) -> bytearray:
    return builder_of(documents).build()


def content(*documents: dict[str, Any]) -> bytes:
    return b"".join(encode(Head(numbered(SSPS), RATES), index_of(*documents)))


GOOD = content(document("a", 1), document("b", 2, targeting={"os": {"include": ["ios"]}}))


BASE = bytes(index_of(document("a", 1), document("b", 2)))
HEAD_END = 20 + int.from_bytes(GOOD[8:16], "little")
PADDING = range(HEAD_END, -(-HEAD_END // 64) * 64)


def over_a_base(folder: Path, base: bytes) -> Path:
    """A catalog whose base is to be BASE, with these bytes in its file."""
    about = Base("base-1", len(BASE), crc32(BASE), 2, 1, "w")
    write(folder / "catalog", encode(Head(numbered(SSPS), RATES, base=about), index_of()))
    (folder / "base-1").write_bytes(base)
    return folder / "catalog"


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    write(path, [GOOD[:10], GOOD[10:]])
    catalog = Catalog.open(path)
    assert len(catalog) == 2
    assert catalog.ssps == SSPS
    assert catalog.ssp_numbers == {"acme": 1, "acme-eu": 2, "é": 3}
    assert catalog.rates == RATES
    assert catalog.targets("os")
    assert not catalog.targets("country", "browser")
    ranks = [catalog.index.rank(id) for id in ("b", "a", "c")]
    assert ranks == [0, 1, None]  # by falling price
    assert [catalog.index.price(rank) for rank in (0, 1)] == [2_000_000, 1_000_000]
    stored = decode_payload(catalog.index.payload(1))
    assert (stored.cid, stored.number, stored.creatives[0].adm) == ("a", 1, "é")


def test_memoised_floors_are_not_written() -> None:
    """What a process has looked up lately is no part of a catalog."""
    rates = Rates(RATES.usd, RATES.date)
    assert rates.floor_micros(1.5, "JPY") == 10_000
    assert Catalog(b"".join(encode(Head(numbered(SSPS), rates), index_of()))).rates == rates


def test_an_empty_catalog() -> None:
    catalog = Catalog(content())
    assert len(catalog) == 0
    assert catalog.ssps == SSPS


def test_a_family_has_the_number_of_its_first_variant() -> None:
    ssps = {"acme": ("acme", 4), "acme-eu": ("acme", 2), "acme-us": ("acme", 7), "b": ("b", 1)}
    catalog = Catalog(b"".join(encode(Head(ssps, RATES), index_of())))
    assert catalog.families == {4: 2, 7: 2}


def test_writing_replaces_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "catalog"
    write(path, [GOOD])
    before = Catalog.open(path)
    inode = path.stat().st_ino
    write(path, [content()])
    assert path.stat().st_ino != inode
    assert (len(before), len(Catalog.open(path))) == (2, 0)
    assert [each.name for each in tmp_path.iterdir()] == ["catalog"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SNAPCAT2",
        b"x" * 1000,
        bytes(1000),
        b"\x7fELF" + GOOD[4:],
        GOOD[:-1],
        GOOD + b"\0",
        GOOD[:100],
        GOOD[: len(GOOD) // 2],
        GOOD.replace(b'"ssps"', b'"sspz"', 1),
        GOOD.replace(b'"usd"', b'"usx"', 1),
        GOOD[:8] + b"\xff" * 8 + GOOD[16:],
        GOOD[:8] + bytes(8) + GOOD[16:],
    ],
    ids=["empty", "a magic alone", "letters", "zeroes", "ELF", "a byte short", "a byte long",
         "its head", "a half", "no SSPs", "no rates", "endless", "nothing inside"],
)  # fmt: skip
def test_foreign_and_damaged_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "catalog"
    path.write_bytes(data)
    with pytest.raises(CatalogError, match="not a catalog of this version"):
        Catalog.open(path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Catalog.open(tmp_path / "catalog")


@given(size=st.integers(0, len(GOOD) - 1))
def test_any_shorter_file_is_refused(size: int) -> None:
    with pytest.raises(CatalogError):
        Catalog(GOOD[:size])


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    for tried in (data, GOOD[:20] + data):
        with pytest.raises(CatalogError):
            Catalog(tried)


@given(at=st.integers(0, len(GOOD) - 1), bits=st.integers(1, 255))
def test_any_damaged_byte_is_found(at: int, bits: int) -> None:
    if at in PADDING:  # is read by nobody
        return
    with pytest.raises(CatalogError):
        Catalog(GOOD[:at] + bytes([GOOD[at] ^ bits]) + GOOD[at + 1 :])


@pytest.mark.parametrize("size", [0, 1, -1, len(BASE) // 2, 64])
def test_a_base_cut_short_is_refused(tmp_path: Path, size: int) -> None:
    path = over_a_base(tmp_path, BASE[:size])
    with pytest.raises(CatalogError):
        Catalog.open(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(at=st.integers(0, len(BASE) - 1), bits=st.integers(1, 255))
def test_any_damaged_byte_of_a_base_is_found(tmp_path: Path, at: int, bits: int) -> None:
    """The matcher trusts offsets: without this a damaged one ends every worker."""
    path = over_a_base(tmp_path, BASE[:at] + bytes([BASE[at] ^ bits]) + BASE[at + 1 :])
    with pytest.raises(CatalogError, match="base-1 is damaged"):
        Catalog.open(path)


def test_a_whole_base_is_taken(tmp_path: Path) -> None:
    catalog = Catalog.open(over_a_base(tmp_path, BASE))
    assert [catalog.index.rank(id) is not None for id in "abc"] == [True, True, False]


class Source(bytearray):
    """A buffer that can be referred to weakly."""


def test_an_index_in_a_cycle_releases_its_buffer() -> None:
    """A traceback makes such a cycle. The collector cleared the memoryview while it was in use."""
    source = Source(Builder().build())
    gone = weakref.ref(source)
    cycle: list[Any] = [Index(memoryview(source))]
    cycle.append(cycle)
    del source, cycle
    gc.collect()
    assert gone() is None
