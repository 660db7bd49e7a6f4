"""How commands print on a terminal."""

from collections.abc import Callable
from datetime import date

import click
import pytest

from snapbid.cli.console import Refused, day, wrapped
from snapbid.loadtest.terminal import LiveProgress, PlainProgress


@pytest.mark.parametrize("width", [20, 40, 79, 200])
def test_lines_are_wrapped_to_the_terminal(width: int) -> None:
    line = "    to do: " + "check Redis, its log and SNAPBID_REDIS_URL; " * 4
    lines = wrapped(line, width).splitlines()
    assert max(map(len, lines)) <= max(width, 8 + len("SNAPBID_REDIS_URL;"))
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert lines[0].startswith("    to do:")
    assert all(further.startswith(" " * 8) for further in lines[1:])


def test_unbroken_text_is_not_cut() -> None:
    url = "http://127.0.0.1:8000/" + "a" * 100
    assert url in wrapped(f"see {url} for more", 40).split()


def test_refusals_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Refused("two\nlines\x1b]0;title\x07").show()
    assert capsys.readouterr().err == "two\nlines\\x1b]0;title\\x07\n"


@pytest.mark.parametrize("progress", [LiveProgress, PlainProgress])
def test_progress_does_not_control_the_terminal(
    progress: Callable[[], LiveProgress | PlainProgress], capsys: pytest.CaptureFixture[str]
) -> None:
    progress().say("\x1b]0;title\x07")
    assert capsys.readouterr().out == "\\x1b]0;title\\x07\n"


def test_days_have_one_format() -> None:
    assert day("2026-01-31") == date(2026, 1, 31)
    for text in ("", "2026-1-31", "20260131", "2026-02-30", "2026-01-31T00:00", "31.01.2026"):
        with pytest.raises(click.BadParameter, match="must be a date like 2026-01-31, found "):
            day(text)
