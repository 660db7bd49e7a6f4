"""The client's own counts of acknowledged requests, which the report must match.

Requests that were sent but never answered may or may not be in the report, so they are counted
separately. If every request was answered, the accounts and the report must be equal; otherwise the
report must lie within the bounds that the unanswered requests allow.
"""

from msgspec import Struct


class Account(Struct):
    """One SSP's counts; `cpm_micros` is 1,000 times the cost of its wins, in micro-USD.

    The `maybe_…` fields are upper bounds on what unanswered requests and the rounding of converted
    prices may add.
    """

    bids: int = 0
    wins: int = 0
    imps: int = 0
    cpm_micros: int = 0
    maybe_bids: int = 0
    maybe_wins: int = 0
    maybe_imps: int = 0
    maybe_cpm_micros: int = 0

    def __iadd__(self, other: "Account") -> "Account":
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


def by_canonical(accounts: dict[str, Account], canonical: dict[str, str]) -> dict[str, Account]:
    """Sum the accounts of descriptors by canonical id, as the report does (document 1)."""
    totals: dict[str, Account] = {}
    for descriptor, account in accounts.items():
        total = totals.setdefault(canonical[descriptor], Account())
        total += account
    return totals
