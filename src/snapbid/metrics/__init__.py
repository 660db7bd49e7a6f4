"""Counters and histograms in shared files, summed over all processes of a machine (contract 8)."""

from snapbid.metrics.definitions import DEFINITIONS, Definition
from snapbid.metrics.page import CONTENT_TYPE, exposition
from snapbid.metrics.slots import Counter, Histogram, Metrics, read

__all__ = [
    "CONTENT_TYPE",
    "DEFINITIONS",
    "Counter",
    "Definition",
    "Histogram",
    "Metrics",
    "exposition",
    "read",
]
