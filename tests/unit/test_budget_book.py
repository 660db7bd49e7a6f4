"""Which budgets a machine's allocator brings money for: those of the catalog, by number."""

from pathlib import Path
from typing import Any
from zlib import crc32

from support.campaigns import document
from support.remembered import at
from support.snapshot import RATES, builder_of

from snapbid.catalog.catalog import Base, Catalog, Head, encode, write
from snapbid.ledger.budgets.allocator import EscrowedBudget
from snapbid.ledger.budgets.limits import Limits
from snapbid.server.budget_book import BudgetBook

NOON = at("2030-06-15T12:00:00")
TODAY = str(int(NOON) // 86_400)
CREATIVE = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
USD = 10**9  # nano-USD


BASED = [document("a", budget={"total": 1}), document("b"), document("c", budget={"daily": 3})]


def catalog(folder: Path, *changed: Any, gone: str = "", base: str = "base-1") -> Catalog:
    """An overlay over BASED; the numbers of both begin at 1."""
    index = builder_of(BASED).build()
    (folder / base).write_bytes(index)
    overlay = builder_of(changed)
    for id in gone:
        overlay.hide(id)
    about = Base(base, len(index), crc32(index), len(BASED), 1, "w")
    write(
        folder / "catalog", encode(Head({"acme": ("acme", 1)}, RATES, base=about), overlay.build())
    )
    return Catalog.open(folder / "catalog")


def test_new_and_changed_budgets(tmp_path: Path) -> None:
    book = BudgetBook()
    assert sorted(book.take_up(catalog(tmp_path))) == [1, 3]  # b has none
    assert book.of(1, NOON) == EscrowedBudget(1, {"t": USD}, 2_000_000)
    assert book.of(3, NOON) == EscrowedBudget(3, {TODAY: 3 * USD}, 2_000_000)
    assert book.of(2, NOON) is book.of(4, NOON) is None
    more = document("a", budget={"total": 2})
    assert book.take_up(catalog(tmp_path, more)) == [1]
    assert book.of(1, NOON) == EscrowedBudget(1, {"t": 2 * USD}, 2_000_000)
    assert book.take_up(catalog(tmp_path, more)) == []
    assert book.take_up(catalog(tmp_path, {**more, "cpm": 3})) == [1]
    assert book.take_up(catalog(tmp_path, base="base-2")) == []


def test_budgets_hidden_by_the_overlay_are_gone(tmp_path: Path) -> None:
    book = BudgetBook()
    book.take_up(catalog(tmp_path, gone="a"))
    assert book.of(1, NOON) is None
    book.take_up(catalog(tmp_path, document("a")))  # it has no budget now
    assert book.of(1, NOON) is None


def test_pacing_is_in_the_limit() -> None:
    limits = Limits(1, 86_400, 10**6, int(at("2030-01-01T00:00:00") * 1000), in_escrow=True)
    noon = limits.periods(int(NOON))
    assert noon == {"t": USD, TODAY: 43_200_000 + 864_000}
    tomorrow = str(int(TODAY) + 1)
    evening = limits.periods(int(at("2030-06-15T23:59:45")))
    assert evening == {"t": USD, TODAY: 86_400_000, tomorrow: 864_000}
