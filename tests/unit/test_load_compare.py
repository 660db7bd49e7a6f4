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


def test_phases_of_other_names_are_paired_in_order(compare: Any) -> None:
    status, text = compare(result(phase("load", 10.0)), result(phase("trial 1", 10.1)))
    assert status == 0
    assert "\nload and trial 1\n" in text
    assert "worse" not in text


def test_a_page_has_both_runs(compare: Any, tmp_path: Path) -> None:
    file = tmp_path / "both.html"
    a, b = result(phase("load", 10.0)), result(phase("load", 20.0), target="http://b.example:80")
    status, _ = compare(a, b, "--html", str(file))
    assert status == 0
    page = file.read_text()
    assert "http://b.example:80" in page
    assert "A: 10" in page
    assert "B: 20" in page
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
