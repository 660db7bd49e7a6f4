"""The window of a diagnosis: the last 10 minutes, or up to 7 UTC days, as in the report."""

from datetime import date
from typing import Final, NamedTuple
from urllib.parse import parse_qs

from snapbid.base.errors import BadWindow
from snapbid.report import window
from snapbid.report.window import ReportWindow

MINUTES: Final = 10
LAST: Final = f"{MINUTES}m"
_SHOWN_CHARACTERS: Final = 40  # characters of an invalid value


class DiagnosisWindow(NamedTuple):
    """A window of UTC days, or the last `MINUTES` minutes if `days` is None."""

    days: ReportWindow | None

    @property
    def key(self) -> str:
        """The window's part of a cache key."""
        return f"{self.days.first}:{self.days.last}" if self.days else LAST


def parse(query: bytes, today: date) -> DiagnosisWindow:
    """Parse the window in a query string. Raises BadDate or BadWindow."""
    given = parse_qs(query.decode("latin-1"), keep_blank_values=True)
    if "last" not in given:
        return DiagnosisWindow(window.parse(query, today))
    if given["last"] != [LAST]:
        shown = given["last"][0] if len(given["last"]) == 1 else f"{len(given['last'])} of them"
        raise BadWindow(f"last: must be {LAST}, found {shown[:_SHOWN_CHARACTERS]!a}")
    if twice := sorted(given.keys() & {"from", "to"}):
        raise BadWindow(f"{', '.join(twice)}: cannot be combined with last")
    return DiagnosisWindow(None)
