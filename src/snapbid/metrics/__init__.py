"""Counters and histograms in shared files, summed over all processes of a machine (contract 8)."""

from snapbid.metrics._cells import Counter, Counters, Histogram
from snapbid.metrics.definitions import DEFINITIONS, WATCHED, Definition
from snapbid.metrics.page import CONTENT_TYPE, Samples, exposition
from snapbid.metrics.slots import Metrics, read

__all__ = [
    "CONTENT_TYPE",
    "DEFINITIONS",
    "WATCHED",
    "Counter",
    "Counters",
    "Definition",
    "Histogram",
    "Metrics",
    "Samples",
    "exposition",
    "read",
]
