"""The window of a report against the calendar; its cases stand in tests/conformance."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.base.errors import BadDate, BadWindow
from snapbid.partners.diagnosis import window as diagnosis
from snapbid.report.reports import usd
from snapbid.report.window import ReportWindow, parse


@given(st.dates(), st.dates(), st.dates())
def test_any_dates(first: date, last: date, today: date) -> None:
    query = f"from={first}&to={last}".encode()
    length = (last - first).days + 1
    if last > today or not 1 <= length <= 7:
        with pytest.raises(BadWindow) as refused:
            parse(query, today)
        assert (f"{length} days" in refused.value.detail) is (length > 7)
        return
    window = parse(query, today)
    assert window == ReportWindow(first, last)
    assert first <= last <= today
    assert list(window.days()) == [first + timedelta(n) for n in range((last - first).days + 1)]
    assert 1 <= len(list(window.days())) <= 7


@given(st.dates(), st.integers(1, 400), st.integers(0, 6))
def test_a_diagnosis_ends_today_at_the_latest(today: date, after: int, before: int) -> None:
    """Its window is a report's, and says so of a day to come."""
    try:
        last = today + timedelta(after)
        first = last - timedelta(before)
    except OverflowError:
        return
    with pytest.raises(BadWindow, match=r"\bto: "):
        diagnosis.parse(f"from={first}&to={last}".encode(), today)


@pytest.mark.parametrize("beside", ["from", "to"])
def test_the_last_minutes_of_a_diagnosis_have_no_days_beside_them(beside: str) -> None:
    with pytest.raises(BadWindow, match=f"{beside}: cannot be combined with last"):
        diagnosis.parse(f"last=10m&{beside}=2026-03-04".encode(), date(2026, 3, 4))


@given(st.dates().filter(lambda today: today.toordinal() > 7), st.integers(0, 6))
def test_up_to_seven_days_until_today(today: date, before: int) -> None:
    first = today - timedelta(before)
    assert parse(f"from={first}&to={today}".encode(), today) == ReportWindow(first, today)


@given(st.dates().filter(lambda today: today.toordinal() > 7))
def test_eight_days_until_today_are_one_too_many(today: date) -> None:
    with pytest.raises(BadWindow, match="8 days"):
        parse(f"from={today - timedelta(7)}&to={today}".encode(), today)


@given(st.binary(max_size=80))
def test_any_query(query: bytes) -> None:
    with pytest.raises(BadDate):
        parse(query, date(2026, 3, 4))


@given(st.integers(-(10**30), 10**30))
def test_usd_is_rounded_to_nearest(cpm_micros: int) -> None:
    """Compared as integers: 1 USD is 10**9 of these."""
    text = usd(cpm_micros)
    whole, _, decimals = text.lstrip("-").partition(".")
    micros = int(whole + decimals.ljust(6, "0")) * (-1 if text.startswith("-") else 1)
    off = cpm_micros - micros * 1000
    assert abs(off) < 500 or (abs(off) == 500 and micros % 2 == 0)
    assert 1 <= len(decimals) <= 6
    assert decimals == "0" or not decimals.endswith("0")
