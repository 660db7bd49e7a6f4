"""Days in UTC, by which everything is counted."""

from datetime import UTC, date, datetime


def utc_day(epoch_s: float) -> date:
    """Return the UTC day of a time (epoch s)."""
    return datetime.fromtimestamp(epoch_s, UTC).date()
