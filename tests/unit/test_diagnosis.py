"""What the diagnosis makes of request statistics (contract 11)."""

from datetime import UTC, datetime

from snapbid.operations.golive.store import RecentRequestStats
from snapbid.partners.diagnosis.document import Diagnosis, diagnose
from snapbid.partners.diagnosis.window import DiagnosisWindow
from snapbid.warehouse.diagnosis import DayHistory

NOW = datetime(2026, 3, 1, 12, 22, 1, tzinfo=UTC)


def lately(**counts: int) -> Diagnosis:
    recent = RecentRequestStats(counts, {}, [], [], {})
    own = {"acme": recent}
    return diagnose(
        "acme", DiagnosisWindow(None), NOW, DayHistory([], []), own, "https://bid.example"
    )


def test_samples_stand_for_the_requests_that_were_read() -> None:
    """Seen: 30 requests that were refused unread made 31 of the one with a misspelt name."""
    misspelt = "unused:site: is not read: its name is in the wrong letter case"
    sampled = {"requests": 2, "examined": 2, misspelt: 1}
    (fault,) = lately(**sampled, **{"outcome:bid": 2, "outcome:400": 30}).unused
    assert (fault.field, fault.requests) == ("site", 1)
    (fault,) = lately(**sampled | {"requests": 200}).unused
    assert fault.requests == 100


def test_the_last_minutes_are_whole() -> None:
    """Seen: of 10 minutes, those from 9 minutes and a second ago on."""
    assert lately().from_ == datetime(2026, 3, 1, 12, 12, tzinfo=UTC)
