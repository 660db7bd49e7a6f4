"""Tests of which differences between results count as moves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import __main__, render
from bench.compare import compare
from bench.runs import RUNS, Run
from bench.sections import socket
from bench.sections.parts import Figure

ABOUT = {"commit": "a", "cpu": "one", "load_before": 0.2, "python": "3.11.7", "versions": {}}


class Section:
    """A section with the figures of the result as they are; a higher "rate" is better."""

    def render(self, result: dict[str, Any]) -> str:
        return ""

    def figures(self, result: dict[str, Any]) -> Iterator[Figure]:
        for name, values in result["figures"].items():
            yield Figure(name, *values)._replace(less_is_better=name != "rate")


def result(about: dict[str, Any] = ABOUT, **figures: tuple[float, ...]) -> dict[str, Any]:
    return {"kind": "any", "about": about, "figures": figures}


def lines(before: dict[str, Any], after: dict[str, Any], reference: str | None = None) -> str:
    run = Run(Section(), reference=reference)
    return "\n".join(compare(run, before, after, all=False))


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ((10.0,), (10.9,), ""),
        ((10.0,), (11.1,), "WORSE"),
        ((10.0,), (8.9,), "better"),
        ((10.0, 9.0, 11.0), (12.0, 11.5, 13.0), "WORSE"),
        ((10.0, 9.0, 11.0), (12.0, 11.0, 13.0), ""),
        ((10.0, 9.0, 11.0), (12.0,), "WORSE"),
        ((0.0,), (3.0,), "WORSE"),
        ((0.0,), (0.0,), ""),
    ],
)
def test_beyond_noise_and_spreads(
    before: tuple[float, ...], after: tuple[float, ...], word: str
) -> None:
    said = lines(result(time=before), result(time=after))
    assert [verdict for verdict in ("WORSE", "better") if verdict in said] == (
        [word] if word else []
    )


def test_more_is_better_of_a_rate() -> None:
    assert "better" in lines(result(rate=(10.0,)), result(rate=(12.0,)))
    assert "WORSE" in lines(result(rate=(12.0,)), result(rate=(10.0,)))


@pytest.mark.parametrize(
    ("before", "after", "drift", "said"),
    [
        ({"time": (10.0,)}, {"time": (12.4,)}, 1.2, "2 have not moved"),
        ({"time": (10.0,)}, {"time": (24.0,)}, 1.2, "10.00 ->       24.00   +100%  WORSE"),
        ({"time": (10.0,)}, {"time": (13.5,)}, 1.2, "13.50    +12%  WORSE"),
        ({"time": (10.0,)}, {"time": (10.0,)}, 0.8, "10.00    +25%  WORSE"),
        ({"time": (10.0, 9.0, 11.0)}, {"time": (13.5, 13.0, 14.0)}, 1.2, "2 have not moved"),
        ({"rate": (10.0,)}, {"rate": (8.0,)}, 1.25, "2 have not moved"),
        ({"rate": (10.0,)}, {"rate": (10.0,)}, 1.25, "10.00    +25%  better"),
        ({"rate": (10.0,)}, {"rate": (5.0,)}, 1.25, "5.00    -38%  WORSE"),
    ],
)
def test_a_change_is_measured_without_the_drift_of_the_machine(
    before: dict[str, Any], after: dict[str, Any], drift: float, said: str
) -> None:
    old, new = result(**before, other=(5.0,)), result(**after, other=(5.0 * drift,))
    text = lines(old, new, "other")
    assert said in text
    assert f"the machine drifted by {drift - 1:+.0%} (other)" in text


@pytest.mark.parametrize(("drift", "named"), [(2.0, "+100%"), (1.35, "+35%"), (0.7, "-30%")])
def test_nothing_is_compared_beyond_a_drift_of_a_third(drift: float, named: str) -> None:
    before, after = result(time=(10.0,), other=(5.0,)), result(time=(20.0,), other=(5.0 * drift,))
    text = lines(before, after, "other")
    assert f"the machine drifted by {named} (other)" in text
    assert "repeat the run" in text
    assert "have not moved" not in text


def test_memory_and_ratios_do_not_drift() -> None:
    steady = {each.name for each in socket.figures(render.read()["socket"]) if not each.drifts}
    assert {"bid, MiB", "ratio of a bid, to the constant answer"} <= steady
    assert not [name for name in steady if "µs" in name or "requests/s" in name or "_ms" in name]


def test_the_heading_has_both_loads() -> None:
    assert "load before the run: 0.2 -> 0.9" in lines(
        result(), result(ABOUT | {"load_before": 0.9})
    )
    for about in (ABOUT, ABOUT | {"load_before": 1.1}):
        text = lines(result(about), result())
        assert ("a busy machine" in text) == (about is not ABOUT)


def test_the_heading_names_other_versions_and_methods() -> None:
    before = result(ABOUT | {"versions": {"granian": "1", "uvloop": "2"}})
    after = result(ABOUT | {"versions": {"granian": "2", "uvloop": "2"}, "python": "3.13.1"})
    before |= {"method": {"rounds": 5, "wins": {"win": 5}, "seconds": 2}}
    after |= {"method": {"rounds": 3, "wins": {"win": 6}, "seconds": 2, "new": 1}}
    text = lines(before, after)
    for named in ("granian: 1 -> 2", "Python: 3.11.7 -> 3.13.1", "rounds: 5 -> 3", "win: 5 -> 6"):
        assert f"  {named}\n" in text
    assert "new: none -> 1" in text
    assert "uvloop" not in text
    assert "seconds" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "truncated"),
        ('{"kind": "ledger"', "truncated"),
        ('{"kind": "ledger"}', "`about`"),
        ('{"kind": "ledger", "about": {"commit": "a"}}', "`cpu`"),
        (json.dumps({"kind": "drain", "about": ABOUT}), "results of drain"),
        (None, "no results of ledger"),
    ],
)
def test_earlier_results_are_read_before_the_first_run(
    text: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "ledger.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr("sys.argv", ["bench", "ledger", "--against", str(tmp_path)])
    monkeypatch.setattr(__main__, "OUTPUT", tmp_path / "output")
    monkeypatch.setattr(__main__, "_run", lambda *_: pytest.fail("it runs"))
    with pytest.raises(SystemExit):
        __main__.main()
    error = capsys.readouterr().err
    assert str(file if text is not None else tmp_path) in error
    assert said in error


def test_new_and_gone() -> None:
    said = lines(result(old=(1.0,), both=(1.0,)), result(new=(1.0,), both=(1.0,)))
    assert "new: new" in said
    assert "gone: old" in said
    assert "1 have not moved" in said


def test_a_different_processor_is_reported() -> None:
    assert "a different processor" in lines(result(ABOUT | {"cpu": "two"}), result())


@pytest.mark.parametrize("figures", [[], {"bid": {"median": 1}}])
def test_results_of_another_form(figures: Any) -> None:
    before = {"kind": "any", "about": ABOUT, "figures": {"bid": 1.0}}
    for run in RUNS.values():
        *_, said = compare(run, before, before | {"figures": figures}, all=False)
        assert "not compared" in said
