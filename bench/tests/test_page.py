"""Tests of the page of benchmarks and the tables on sizing, with the committed results."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from bench import ledger_run, limits_run, sizing
from bench.render import HERE, PAGE, read, render
from bench.runs import RUNS
from bench.sections import socket
from snapbid.embedded import Home, Redis
from snapbid.ledger import scripts

RESULTS = read()
NUMBERS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)(?: |$)", re.MULTILINE)


@pytest.mark.parametrize("kind", RESULTS)
def test_a_section_says_when_and_where(kind: str) -> None:
    section = RUNS[kind].section.render(RESULTS[kind])
    assert section.startswith("\n## ")
    assert RESULTS[kind]["about"]["commit"] in section
    assert "{" not in section
    assert section in render(RESULTS)


def test_the_page_is_rendered_from_the_results() -> None:
    assert (HERE / PAGE).read_text() == render(RESULTS)


def test_the_page_begins_with_what_a_bid_costs() -> None:
    result = deepcopy(RESULTS["socket"])
    bid = result["figures"]["bid"]
    bid["processor_us"]["median"], bid["requests_per_s"]["median"] = 28.44, 33_092.6
    result["half"]["bid"]["p99_ms"]["median"] = 7.125
    result["figures"].pop("win", None)
    short = socket.in_short(result)
    assert short in render({"socket": result}).partition("## Over sockets")[0]
    assert " | 28.4 µs of a core, 33,093 a second |\n" in short
    assert " / 7.12 ms |" in short
    assert "win notice" not in short
    result["figures"]["win"] = bid
    assert "| a win notice" in socket.in_short(result)


@pytest.mark.parametrize("kind", RESULTS)
def test_figures_have_names_of_their_own(kind: str) -> None:
    figures = list(RUNS[kind].section.figures(RESULTS[kind]))
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert (
            figure.low is None or figure.high is None or figure.low <= figure.value <= figure.high
        )


def test_sizing_tables_match_the_results() -> None:
    page = sizing.PAGE.read_text()
    assert sizing.BEGIN + sizing.render(RESULTS) + sizing.END in page


def test_sizing_reckons_with_limited_bids_for_as_long_as_redis_keeps_them() -> None:
    known = dict(pair for name in ("time_buckets", "heartbeat") for pair in numbers(name))
    assert known["TIME_BUCKET_S"] == sizing.TIME_BUCKET_S
    assert known["APART_S"] == sizing.APART_S
    *_, row = sizing.render(RESULTS).splitlines()
    gigabytes = float(row.split("|")[-2].replace(",", ""))
    limited_bytes = RESULTS["ledger"]["figures"]["filled"]["bytes"] + 20
    bids = sizing.TRAFFICS[-1] * sizing.BID_SHARE
    assert gigabytes * 1e9 >= bids * limited_bytes * (7_200 + 2 * 1_800 + 600)


def numbers(name: str) -> Iterator[tuple[str, int]]:
    """Yield the names and values of the numeric constants in a script of the ledger."""
    text = (Path(scripts.__file__).parent / f"{name}.lua").read_text()
    for names, values in NUMBERS.findall(text):
        yield from zip(names.split(", "), map(int, values.split(", ")), strict=True)


def test_several_primaries_are_a_lower_bound() -> None:
    rows = [row.split(" | ") for row in sizing.render(RESULTS).splitlines()[-4:]]
    assert [row[3] for row in rows if not row[3].startswith("at least ")] == ["1", "1"]


def test_wins_that_were_counted_before_are_on_no_page() -> None:
    """The rows on win notices come only from runs that sent each win once."""
    socket = RESULTS["socket"]
    for names in (socket["figures"], socket["half"]):
        wins = {name for name in names if name.endswith("win")}
        assert wins == socket["method"].get("wins_a_turn", {}).keys()


def test_added_costs_have_quartiles() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    assert limits_run._added(values, [0.0] * 4) == [2.5, 1.75, 3.25]


def test_a_server_that_was_not_the_limit_is_not_explained_by_the_idle_client_alone() -> None:
    own = {name: {"median": share} for name, share in (("server_busy", 0.8), ("client_busy", 0.4))}
    assert "(the client's core or other programs)" in socket.slow({"bid": own})
    own["client_busy"]["median"] = 0.95
    assert "(the client)" in socket.slow({"bid": own})


@pytest.mark.long
async def test_limited_bids_and_holds_are_measured(tmp_path: Path) -> None:
    with Home(tmp_path / "home") as home:
        server = Redis(home)
        server.start()
        try:
            run = await ledger_run._run(server.url, tmp_path / "spool", bids=20_000, rounds=0)
        finally:
            server.stop()
    assert run["filled"]["limited_bytes"] > 50
    assert run["filled"]["hold_bytes"] > 100
