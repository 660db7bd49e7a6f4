"""Risks of a store: that it loses acknowledged data, or refuses writes (contract 5)."""

import logging
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

StoreName: TypeAlias = Literal["redis", "warehouse"]
Severity: TypeAlias = Literal["unsupported", "volatile", "weak", "readonly"]

NAMES: Final[dict[StoreName, tuple[str, ...]]] = {
    "redis": (
        "permission",
        "arrangement",
        "replicas",
        "promotion",
        "version",
        "appendonly",
        "eviction",
        "replica",
        "appendfsync",
        "aof_write",
        "rdb_write",
        "memory",
        "format",
        "ledger",
    ),
    "warehouse": (
        "version",
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "standby",
        "read_only",
        "schema",
    ),
}
"""The risks of each store, as named in the metric."""

logger = logging.getLogger(__name__)


class Risk(msgspec.Struct, frozen=True):
    """One risk: `text` names the configuration and the possible loss, `remedy` the fix.

    Programs do not start with a store that has an `unsupported` risk, nor with a `volatile` one
    unless SNAPBID_ALLOW_VOLATILE is set. A store with a `readonly` risk refuses writes for now.
    """

    store: StoreName
    name: str
    severity: Severity
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}: {self.remedy}"


def forbids(risk: Risk, *, allow_volatile: bool) -> bool:
    """Return whether a risk of a store forbids programs to start with that store."""
    return risk.severity == "unsupported" or (risk.severity == "volatile" and not allow_volatile)


class RiskLog:
    """Logs each risk when it appears or changes, and when it is resolved."""

    def __init__(self) -> None:
        self._known: dict[StoreName, dict[str, Risk]] = {}

    def update(self, store: StoreName, risks: Sequence[Risk]) -> None:
        """Log what has changed in a store's risks since the last call for this store."""
        before = self._known.get(store, {})
        now = {risk.name: risk for risk in risks}
        for name, risk in now.items():
            if before.get(name) != risk:
                logger.warning(
                    "%(text)s: %(remedy)s",
                    {"store": store, "risk": name, "text": risk.text, "remedy": risk.remedy},
                )
        for name in before.keys() - now.keys():
            logger.info(
                "resolved: %(text)s", {"store": store, "risk": name, "text": before[name].text}
            )
        self._known[store] = now
