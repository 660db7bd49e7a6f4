"""Summarises repeated measurements as one figure."""

from collections.abc import Sequence
from statistics import median, quantiles


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Return the median and the quartiles."""
    if len(values) > 1:
        q1, middle, q3 = quantiles(values, n=4, method="inclusive")
    else:
        q1 = middle = q3 = median(values)
    return {"median": round(middle, digits), "q1": round(q1, digits), "q3": round(q3, digits)}
