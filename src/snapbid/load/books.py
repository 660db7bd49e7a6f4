"""The client's own ledger: what the report must count for what was sent and acknowledged.

What was sent and never answered may count or not; it is kept apart, so that without it the two
sides must be equal, and with it the report must lie between the bounds.
"""

from msgspec import Struct


class Account(Struct):
    """One SSP's counts; `cpm_micros` is the sum of the prices of wins, `maybe` is unanswered."""

    bids: int = 0
    wins: int = 0
    imps: int = 0
    losses: int = 0
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
    """Accounts of descriptors put together as the report does (document 1)."""
    found: dict[str, Account] = {}
    for descriptor, account in accounts.items():
        total = found.setdefault(canonical[descriptor], Account())
        total += account
    return found
