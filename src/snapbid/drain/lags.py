"""Buckets of the drain's lag histograms (s)."""

from typing import Final

LAGS: Final = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
