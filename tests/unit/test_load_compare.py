"""`snapbid load compare`: two results beside each other."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke
from support.load_results import phase, result


@pytest.fixture
def compare(tmp_path: Path) -> Any:
    def call(a: dict[str, Any], b: dict[str, Any], *options: str) -> tuple[int, str]:
        files = [tmp_path / "a.json", tmp_path / "b.json"]
        for file, document in zip(files, (a, b), strict=True):
            file.write_text(json.dumps(document))
        done = invoke({}, "load", "compare", *map(str, files), *options)
        return done.returncode, done.stdout + done.stderr

    return call


def test_phases_of_a_name_are_beside_each_other(compare: Any) -> None:
    warm = phase("warm-up", 99.0, measured=False)
    a = result(warm, phase("step 1", 10.0), phase("step 2", 20.0, error_percent=0.0))
    b = result(warm, phase("step 2", 30.0, error_percent=1.5), phase("step 1", 5.0), seed=2)
    status, text = compare(a, b)
    assert status == 0
    assert "differs: seed: 1 / 2" in text
    assert "warm-up" not in text
    first, second = text.split("\nstep 1\n")[1].split("\nstep 2\n")
    assert [line.split() for line in first.splitlines() if "p99 ms" in line] == [
        ["p99", "ms", "10", "5", "-50.0%"]
    ]
    assert [line.split() for line in second.splitlines() if "p99 ms" in line] == [
        ["p99", "ms", "20", "30", "+50.0%", "worse"]
    ]
    assert [line.split() for line in second.splitlines() if "errors" in line] == [
        ["errors", "%", "0", "1.50", "new", "worse"]
    ]
    assert "bid rate %" in first
    assert "same" in first


def test_phases_of_other_names_are_paired_by_rate(compare: Any) -> None:
    status, text = compare(result(phase("load", 10.0)), result(phase("trial 1", 10.1)))
    assert status == 0
    assert "\nload and trial 1\n" in text
    assert "worse" not in text


def test_trials_are_paired_by_rate(compare: Any) -> None:
    """Their numbers say nothing; phases of a scenario keep their names at another rate."""
    a = result(phase("trial 1", 1.0, rate=500), phase("trial 2", 2.0, rate=1000),
               phase("trial 3", 3.0, rate=750), phase("calm", 4.0, rate=200))  # fmt: skip
    b = result(phase("trial 1", 5.0, rate=1000), phase("trial 2", 6.0, rate=2000),
               phase("calm", 7.0, rate=250))  # fmt: skip
    status, text = compare(a, b)
    assert status == 0
    head, *pairs = text.split("\n\n")
    assert [line for line in head.splitlines() if line.startswith("only")] == [
        "only in A: trial 1 at 500/s",
        "only in A: trial 3 at 750/s",
        "only in B: trial 2 at 2,000/s",
    ]
    assert [pair.splitlines()[0] for pair in pairs] == ["trial 2 and trial 1", "calm"]


def test_verdicts_are_shown(compare: Any) -> None:
    failed = {"ok": False, "reason": "objective missed in load"}
    given = result(phase("load", 1.0)), result(phase("load", 1.0, rate=9), verdict=failed)
    status, text = compare(*given)
    assert status == 0
    a, b, *_ = text.splitlines()
    assert a.endswith("UTC, PASSED")
    assert b.endswith("UTC, FAILED: objective missed in load")


def test_results_do_not_control_the_terminal(compare: Any) -> None:
    ill = {"ok": False, "reason": "\x1b]0;title\x07\nPASSED"}
    status, text = compare(
        result(phase("\x1b[2J", 1.0), target="\x9b2J", verdict=ill), result(phase("load", 2.0))
    )
    assert status == 0
    assert text.replace("\n", "").isprintable()
    assert r"FAILED: \x1b]0;title\x07\nPASSED" in text
    assert r"\x1b[2J and load" in text


def test_a_page_has_both_runs(compare: Any, tmp_path: Path) -> None:
    file = tmp_path / "both.html"
    b = result(phase("load", 20.0), phase("step 2", 1.0, rate=7), target="http://b.example:80")
    a = result(phase("load", 10.0))
    status, _ = compare(a, b, "--html", str(file))
    assert status == 0
    page = file.read_text()
    assert "http://b.example:80" in page
    assert "A: 10" in page
    assert "B: 20" in page
    assert "only in B: step 2 at 7/s" in page
    assert '<em class="bad">+100.0%</em>' in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("b", "words"),
    [
        ({"phases": []}, "b.json is not a result of snapbid load --json"),
        (result(phase("load", 1.0, measured=False)), "has no measured phase"),
    ],
)
def test_malformed_results_are_refused(compare: Any, b: dict[str, Any], words: str) -> None:
    status, text = compare(result(phase("load", 1.0)), b)
    assert status == 2
    assert words in text
