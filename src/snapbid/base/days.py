"""Days in UTC, by which everything is counted."""

from datetime import UTC, date, datetime


def utc_day(epoch_s: float) -> date:
    """Return the day of a time."""
    return datetime.fromtimestamp(epoch_s, UTC).date()
