"""Numbers, times and texts, formatted for messages, pages and tables."""

from datetime import UTC, datetime
from typing import Final

# Their full-width forms count as the same signs.
_FORMULA: Final = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, such as `1 campaign` or `2 campaigns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def utc(epoch_s: float) -> str:
    """Format a time (epoch s) in UTC, to the second."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def one_line(text: str) -> str:
    """Escape line breaks and control characters."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def inert(text: str) -> str:
    """Quote a text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
