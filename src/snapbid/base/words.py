"""Numbers and times, formatted for messages and pages."""

from datetime import UTC, datetime


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, such as `1 campaign` or `2 campaigns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def utc(epoch_s: float) -> str:
    """Format a time (epoch s) in UTC, to the second."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
