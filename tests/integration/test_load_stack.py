"""`snapbid load` against `snapbid up`: exact reconciliation, the page in a browser, a recording."""

import contextlib
import json
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.browser import browser
from support.commands import invoke
from support.generators import listening
from support.processes import eventually
from support.stack import Stack, run
from support.wire import Wire

CALM = ("--warmup", "0s", "--timeout", "20s", "--objective", "errors=0%", "--requests", "300")
Document = dict[str, Any]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="snapbid-load-") as path:
        Path(path).chmod(0o711)  # the database runs as another user where this one is root
        yield Path(path)


@pytest.fixture(scope="module")
def stack(folder: Path, initialise: Callable[[Path], None]) -> Iterator[Stack]:
    home = folder / "home"
    initialise(home)
    recording = {"SNAPBID_RECORD": str(folder / "recorded"), "SNAPBID_RECORD_SAMPLE": "0.5"}
    instance = Stack({"SNAPBID_HOME": str(home), **recording}, "up")
    with contextlib.closing(instance):
        instance.start()
        yield instance
        assert instance.stop() == 0
        assert "Traceback" not in instance.output


@pytest.fixture(scope="module")
def load(stack: Stack, folder: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def call(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run({"SNAPBID_HOME": str(folder / "home")}, "load", *CALM, *arguments)

    return call


@pytest.fixture(scope="module")
def whole(load: Any, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A run with notices and events, its files in the folder."""
    process: subprocess.CompletedProcess[str] = load(
        "--ssp", "acme=2", "--ssp", "acme-eu", "--ssp", "nova", "--rate", "60", "--duration", "5s",
        "--win-rate", "0.5", "--events", "2", "--batch", "20", "--bill-delay", "50ms-200ms",
        "--json", str(folder / "a.json"), "--html", str(folder / "a.html"),
    )  # fmt: skip
    return process


@pytest.fixture
def result(whole: Any, folder: Path) -> Document:
    return json.loads((folder / "a.json").read_text())  # type: ignore[no-any-return]


def test_the_report_agrees_to_the_unit(whole: Any, result: Document, stack: Stack) -> None:
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert whole.stdout.splitlines()[0] == f"target: {stack.base_url}"
    assert whole.stdout.splitlines()[-1] == "PASSED"
    reconciliation = result["reconciliation"]
    assert reconciliation["status"] == "exact"
    assert [(row["ssp"], row["what"]) for row in reconciliation["rows"]] == [
        (ssp, what) for ssp in ("acme", "nova") for what in ("bids", "wins", "imps", "micro-USD")
    ]
    for row in reconciliation["rows"]:
        assert row["agrees"]
        assert abs(row["sent"] - row["reported"]) <= (row["what"] == "micro-USD")
        assert row["sent"] > 0
    bids = sum(row["sent"] for row in reconciliation["rows"] if row["what"] == "bids")
    (phase,) = result["phases"]
    assert bids == phase["kinds"]["bid"] + phase["kinds"].get("wrong answer", 0)
    assert sum(phase["kinds"].values()) == phase["offered"]
    assert phase["failures"] == []
    assert result["events"]["events_accepted"] == 20 * result["events"]["batches"] >= 180


def test_two_generators_agree_with_the_report_as_one(stack: Stack, folder: Path) -> None:
    home = {"SNAPBID_HOME": str(folder / "home")}
    given = ("--generators", "2", "--listen", "127.0.0.1:0", "--json", str(folder / "two.json"))
    load = ("--ssp", "acme", "--ssp", "nova", "--rate", "40", "--duration", "3s", "--events", "4",
            "--batch", "5", "--win-rate", "0.5", "--bill-delay", "50ms")  # fmt: skip
    first = Stack(home, "load", *CALM, *load, *given)
    with contextlib.closing(first):
        assert run(home, "load", "--join", listening(first)).returncode == 0
        assert first.process
        assert first.process.wait(120) == 0, first.output
    result = json.loads((folder / "two.json").read_text())
    assert result["reconciliation"]["status"] == "exact"
    assert result["notices"]["fired"]["win"] > 0
    assert result["events"]["events_accepted"] == 5 * result["events"]["batches"] > 0


def test_the_access_that_a_run_issues_is_recorded_and_ends(whole: Any, folder: Path) -> None:
    home = {"SNAPBID_HOME": str(folder / "home")}
    entries = json.loads(invoke(home, "audit", "--json").stdout)
    made = {(each["kind"], each["action"], each["object"]): each["detail"] for each in entries}
    for ssp in ("acme", "nova"):
        (_, expiry) = made["token", "issued", ssp]["exp"]
        within = datetime.strptime(expiry, "%Y-%m-%d %H:%M:%S %Z") - datetime.now(UTC).replace(
            tzinfo=None
        )
        assert timedelta() < within <= timedelta(days=1)
    keys = {action: id for kind, action, id in made if kind == "key"}
    assert keys["removed"] == keys["added"]
    assert "load-test" not in invoke(home, "key", "list").stdout


@pytest.mark.parametrize("begun", ["issued a key", "\n  load: "])
def test_the_key_of_an_interrupted_run_ends(stack: Stack, folder: Path, begun: str) -> None:
    home = {"SNAPBID_HOME": str(folder / "home")}
    load = ("--no-reconcile", "--rate", "20", "--duration", "60s", "--events", "2")
    client = Stack(home, "load", *CALM, *load)
    with contextlib.closing(client):
        client.launch()
        eventually(lambda: begun in client.output, "the run has begun")
        assert client.process
        client.process.send_signal(signal.SIGINT)
        assert client.process.wait(60) == 1, client.output
        assert "Traceback" not in client.output
    assert "load-test" not in invoke(home, "key", "list").stdout


def test_an_objective_that_cannot_hold(load: Any) -> None:
    process = load("--no-reconcile", "--rate", "30", "--duration", "1s", "--objective", "p50=1us")
    assert process.returncode == 1
    last = process.stdout.splitlines()[-1]
    assert last.startswith("FAILED: objective missed in load at 30/s: p50=1us (found ")
    assert process.stderr == ""


def test_a_report_that_differs_fails_the_run(load: Any, stack: Stack) -> None:
    """Another client sends for the same SSP meanwhile."""
    over = threading.Event()

    def meddle() -> None:
        number = 0
        with Wire(stack.port) as wire:
            while not over.wait(0.05):
                number += 1
                request = {
                    "id": f"meddler-{number}",
                    "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}],
                    "device": {"geo": {"country": "USA"}},
                }
                path, headers = "/api/v1/openrtb2/acme/bid", {"content-type": "application/json"}
                wire.ask("POST", path, headers, json.dumps(request).encode())

    meddler = threading.Thread(target=meddle)
    meddler.start()
    try:
        process = load("--rate", "30", "--duration", "2s", "--win-rate", "0")
    finally:
        over.set()
        meddler.join()
    assert process.returncode == 1
    last = process.stdout.splitlines()[-1]
    assert last.startswith("FAILED: the report differs: acme bids: "), process.stdout
    assert "acme bids: " in last


def test_a_recording_has_no_personal_data_and_can_be_replayed(
    whole: Any, load: Any, folder: Path
) -> None:
    file = folder / "recorded"
    eventually(lambda: len(file.read_bytes().splitlines()) > 80, "half of 300 requests recorded")
    assert file.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["ssp"] for line in lines} == {"acme", "acme-eu", "nova"}
    devices = [line["request"].get("device", {}) for line in lines]
    addresses = [device["ip"] for device in devices if "ip" in device]  # no opt-out
    assert len(addresses) > 20
    assert all(address.startswith("10.") for address in addresses)
    assert not any("ext" in line["request"] for line in lines)
    process = load("--no-reconcile", "--replay", str(file), "--rate", "30", "--duration", "2s")
    assert process.returncode == 0, process.stdout


# -- the page ------------------------------------------------------------------------------------


TABLES = """
return Object.fromEntries([...document.querySelectorAll('section[id]')].map(section => [
  section.id,
  [...section.querySelectorAll('tr')].map(row => [...row.cells].map(
    cell => cell.querySelector('data')?.value ?? cell.textContent))]))
"""  # the cells of each section's tables, by the section's id, with numbers unrounded


def value(cell: str) -> float:
    return float(cell.replace(",", ""))


def test_the_page_in_a_browser_has_the_numbers_of_the_json(
    whole: Any, result: Document, folder: Path
) -> None:
    with browser(1366, 768) as window:
        window.open((folder / "a.html").as_uri())
        tables = window.run(TABLES)
    (phase,) = result["phases"]
    head, row = tables["phases"]
    shown = dict(zip(head, row, strict=True))
    assert shown["phase"] == "load"
    for name, key in (("rate/s", "rate"), ("seconds", "seconds"), ("offered", "offered"),
                      ("completed", "answered"), ("dropped", "dropped"),
                      ("errors %", "error_percent"), ("bid rate %", "bid_percent")):  # fmt: skip
        assert value(shown[name]) == phase[key]
    for name, ms in phase["latency_ms"].items():
        assert value(shown[f"{name} ms"]) == ms
    head, row = tables["kinds"]
    assert dict(zip(head[1:], map(value, row[1:]), strict=True)) == phase["kinds"]
    assert [[row[0], row[1], *map(value, row[2:5])] for row in tables["reconciliation"][1:]] == [
        [row["ssp"], row["what"], row["sent"], row["unanswered"], row["reported"]]
        for row in result["reconciliation"]["rows"]
    ]


def test_the_page_is_self_contained(whole: Any, folder: Path) -> None:
    text = (folder / "a.html").read_text()
    assert not re.search(r"url\(|<script|\s(src|href)=", text)


@pytest.mark.parametrize(("width", "height", "dark"), [(1366, 768, False), (390, 844, True)])
def test_the_page_can_be_read_by_everybody(
    whole: Any, folder: Path, width: int, height: int, dark: bool
) -> None:
    """On a laptop and on a phone; the plots tell their values where the pointer is."""
    with browser(width, height, dark=dark) as window:
        window.open((folder / "a.html").as_uri())
        assert window.run("return document.documentElement.scrollWidth") <= width
        assert window.violations() == []
        told = "return getComputedStyle(document.querySelector('.spot text')).visibility"
        assert window.run(told) == "hidden"
        style = "document.styleSheets[0].cssRules"
        assert window.run(
            f"return [...{style}].some(rule => rule.selectorText?.includes('.spot:hover text'))"
        )
        values = "return [...document.querySelectorAll('.spot text')].map(text => text.textContent)"
        assert any("p99: " in text for text in window.run(values))
        assert not window.problems()
