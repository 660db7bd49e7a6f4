"""The comparison with the report: equal to the unit, or not."""

from decimal import Decimal

from snapbid.load.books import Account, by_canonical
from snapbid.load.reports import Sums, compare, judged

BEFORE = Sums(100, 10, 9, Decimal("12345.6"))


def statuses(account: Account, after: Sums, before: Sums = BEFORE) -> tuple[str, list[str]]:
    found = judged(compare("acme", account, before, after))
    return found.status, [row.what for row in found.rows if not row.agrees]


def test_equal_is_exact() -> None:
    account = Account(bids=5, wins=2, imps=1, cpm_micros=2_500_000)
    after = Sums(105, 12, 10, Decimal("14845.6"))
    assert statuses(account, after) == ("exact", [])


def test_one_more_is_different() -> None:
    account = Account(bids=5, wins=2, imps=1, cpm_micros=2_500_000)
    assert statuses(account, Sums(106, 12, 10, Decimal("14845.6"))) == ("different", ["bids"])
    assert statuses(account, Sums(105, 11, 10, Decimal("14845.6"))) == ("different", ["wins"])
    assert statuses(account, Sums(105, 12, 11, Decimal("14845.6"))) == ("different", ["imps"])
    after = Sums(105, 12, 10, Decimal("14847"))
    assert statuses(account, after) == ("different", ["micro-USD"])


def test_money_is_compared_to_the_rounding_of_two_reports() -> None:
    account = Account(wins=3, cpm_micros=1_000_500)  # 1000.5 micro-USD
    nothing = Sums()
    for micros, agrees in ((1000, True), (1001, True), (999, False), (1002, False)):
        status, _ = statuses(account, Sums(0, 3, 0, Decimal(micros)), nothing)
        assert (status == "exact") is agrees


def test_unanswered_requests_may_count_or_not() -> None:
    account = Account(bids=5, maybe_bids=2, wins=1, maybe_wins=1, cpm_micros=1000,
                      maybe_cpm_micros=9_000_000)  # fmt: skip
    for bids, status in ((4, "different"), (5, "within bounds"), (7, "within bounds"),
                         (8, "different")):  # fmt: skip
        after = Sums(bids, 2, 0, Decimal(9001))
        assert statuses(account, after, Sums())[0] == status


def test_variants_are_put_together() -> None:
    accounts = {
        "acme": Account(bids=1),
        "acme-eu": Account(bids=2, wins=1),
        "nova": Account(imps=4),
    }
    canonical = {"acme": "acme", "acme-eu": "acme", "nova": "nova"}
    assert by_canonical(accounts, canonical) == {
        "acme": Account(bids=3, wins=1),
        "nova": Account(imps=4),
    }
