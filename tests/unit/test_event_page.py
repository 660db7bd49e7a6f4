"""The page for event partners names what the service has: rules, codes, events, limits."""

import re
from importlib.resources import files

import pytest
from support.event_reading import PRESETS

from snapbid.drain.sequences import FLAGS
from snapbid.events.answers import INTERNAL_ERROR, PROBLEM_CODES
from snapbid.events.catalog import EVENTS
from snapbid.events.personal import PLAINTEXT_KEYS
from snapbid.events.rulebook import RULES, STATUSES, WARNINGS

PAGE = files("snapbid.events").joinpath("README.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([\w.]+)`", PAGE))


@pytest.mark.parametrize(
    "expected",
    [
        pytest.param({*RULES}, id="rules"),
        pytest.param({*WARNINGS}, id="warnings"),
        pytest.param({*FLAGS}, id="flags"),
        pytest.param({*STATUSES, *PROBLEM_CODES.values(), INTERNAL_ERROR}, id="codes"),
        pytest.param({*EVENTS, *PRESETS}, id="events"),
        pytest.param({*PLAINTEXT_KEYS}, id="keys of personal data"),
    ],
)
def test_the_page_names_all(expected: set[str]) -> None:
    assert expected - NAMED == set()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading, without the table's own heading."""
    section = PAGE.partition(f"\n{heading}\n")[2]
    table = section[section.index("\n|") :].lstrip().partition("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def test_the_statuses_of_codes_are_right() -> None:
    stated = {code.strip("`"): int(status) for status, code, *_ in rows("## Errors")}
    codes = STATUSES | {code: status for status, code in PROBLEM_CODES.items()}
    assert {code: stated.get(code) for code in codes} == codes


def test_deduplication_is_described_for_every_event() -> None:
    by_key: dict[str | None, set[str]] = {}
    for name, event in EVENTS.items():
        by_key.setdefault(event.key, set()).add(name)
    stated: dict[str | None, set[str]] = {}
    for names, identified in rows("## Retries and deduplication"):
        key = next((key for key in by_key if key is not None and f"`{key}`" in identified), None)
        stated[key] = set(re.findall(r"`(\w+)`", names))
    assert stated.keys() == by_key.keys()
    assert stated.pop(None) <= by_key.pop(None)
    assert stated == by_key


def test_presets_have_their_events() -> None:
    ((core, gaming),) = rows("## Events and fields")
    for preset, names in zip(PRESETS, (core, gaming), strict=True):
        events = {name for name, event in EVENTS.items() if event.preset == preset}
        assert set(re.findall(r"`(\w+)`", names)) == events
