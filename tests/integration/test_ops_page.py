"""The operator's page in a real browser, as a laptop and as a phone show it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.browser import Browser, browser
from support.ops import ask, bid, prepare
from support.processes import eventually
from support.stack import Stack

SIZES = [(1366, 768), (390, 844)]


def text(window: Browser) -> str:
    return str(window.run("return document.body.innerText"))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_page(
    width: int, height: int, database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    with browser(width, height, dark=width < 600) as window:
        prepare(database)
        stack = start_stack()
        assert bid(stack, "first")[0] == 200
        window.open(f"{stack.ops_url}/ops")
        eventually(lambda: "<b>shoes</b>" in text(window), "the campaign's name, as text")
        for number in range(9):
            assert bid(stack, f"a{number}")[0] == 200
        assert ask(stack, "GET", "/rtb/win?id=a0&impId=1")[0] == 200
        eventually(lambda: "$0.0020" in text(window), "the spend")
        shown = text(window)
        assert "Redis up" in shown
        assert "PostgreSQL up" in shown
        assert "1 of 1 active campaigns with a budget" in shown
        assert "acme" in shown
        eventually(lambda: "no drain has ever run" in text(window), "the verdict")
        assert "Degraded since " in text(window)
        window.run("document.querySelectorAll('#spans button')[1].click()")
        pressed = "return document.querySelector('#spans [aria-pressed=true]').textContent"
        assert window.run(pressed) == "hour"
        assert window.run("return document.querySelectorAll('path.curve').length") == 5
        assert window.run("return document.documentElement.scrollWidth <= window.innerWidth"), (
            "it is wider than the window"
        )
        assert window.violations() == []
        opener = "document.querySelector('[data-campaign=\"<b>shoes</b>\"]')"
        window.run(f"{opener}.focus(); {opener}.click(); window.first = {opener}")
        eventually(
            lambda: "--campaign '<b>shoes</b>'" in text(window), "what to ask of the campaign"
        )
        assert re.search(r"Left of the day: \$0\.1\d+\.", text(window))
        eventually(lambda: window.run(f"return {opener} !== first"), "new figures")
        assert "--campaign '<b>shoes</b>'" in text(window), "it is folded again"
        assert window.run(f"return document.activeElement === {opener}"), "the focus is lost"
        window.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert not window.problems()
        stack.stop()
        eventually(lambda: "no figures since" in text(window), "word of the server's absence")
        assert window.violations() == []


def test_a_reason_leads_on(database: str, start_stack: Callable[..., Stack]) -> None:
    with browser(1366, 768) as window:
        prepare(database)
        stack = start_stack()
        assert bid(stack, "dear", imp=[{"id": "1", "banner": {"w": 1, "h": 1}}])[0] == 204
        window.open(f"{stack.ops_url}/ops")
        eventually(lambda: "snapbid explain acme FILE" in text(window), "what to do")
        (link,) = window.run(
            "return [...document.querySelectorAll('#meanings a')].map(a => a.hash)"
        )
        assert window.run(f"return document.querySelector('{link}') !== null")


def test_the_policy_of_the_page_stops_scripts_from_elsewhere(
    start_stack: Callable[..., Stack],
) -> None:
    with browser(1366, 768) as window:
        stack = start_stack()
        window.open(f"{stack.ops_url}/ops")
        window.run(
            "const s = document.createElement('script'); s.textContent = 'window.harm = 1';"
            "document.head.append(s); document.body.setAttribute('onclick', 'window.harm = 2');"
            "document.body.click()"
        )
        assert window.run("return window.harm") is None
        assert any("Content Security Policy" in problem for problem in window.problems())
