import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.reference import agents

SPELLINGS = {
    "ios": "iOS,ios,IOS,iPhone OS,iPhone,iPad,iPadOS,Apple iOS,iOS 17.2,iOS17,ios_16_7,iPhone OS 9",
    "android": "Android,android,ANDROID,Android 14,Android-4.4.2,Android OS,Android TV,Fire OS,"
    'Fire OS 7.2,Chromecast Android,"Android","Android" 14',
    "windows": "Windows,windows 7,Windows 10,Windows NT 10.0; Win64,Windows Vista,Windows Phone,"
    "Microsoft Windows,Win32,Windows_11",
    "macos": "macOS,macos,Mac OS,Mac OS X,Mac OS X 10_15_7,MacOSX,OS X,OSX,os-x,Macintosh",
    "linux": "Linux,linux x86_64,GNU/Linux,Ubuntu,Ubuntu 22.04,Debian,Fedora,Red Hat,Linux armv7l",
    "chromeos": "Chrome OS,ChromeOS,chromeos,CrOS,CrOS x86_64 14541.0.0,Chromium OS",
    "tizen": "Tizen,TIZEN 6.5,Tizen OS",
    "webos": "webOS,WebOS,web0s,LG webOS,webOS TV 6.0,Web0S",
    "other": "other,Roku OS,Roku,tvOS,watchOS,KaiOS,HarmonyOS,PlayStation,BlackBerry,Andriod,?",
}

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "agents" / "user_agents.json"
AGENTS = [(case["os"], case["browser"], case["ua"]) for case in json.loads(CASES.read_text())]


@pytest.mark.parametrize(
    ("system", "spelling"),
    [(system, spelling) for system, text in SPELLINGS.items() for spelling in text.split(",")],
)
def test_spellings_of_operating_systems(system: str, spelling: str) -> None:
    assert agents.fold_os(spelling) == system
    assert agents.fold_os(f"  {spelling.upper()} ") == system


@pytest.mark.parametrize(("system", "browser", "ua"), AGENTS)
def test_user_agents(system: str, browser: str, ua: str) -> None:
    assert agents.parse(ua) == (system, browser)


@pytest.mark.parametrize(
    ("browser", "brands"),
    [
        ("chrome", "Not/A)Brand,Chromium,Google Chrome"),
        ("chrome", "Chromium"),
        ("edge", "Chromium,Microsoft Edge,Not-A.Brand"),
        ("edge", "microsoft edge"),
        ("opera", "Chromium,Opera"),
        ("samsung", "Samsung Internet,Chromium"),
        ("firefox", "Firefox"),
        ("other", "Not/A)Brand"),
        ("chrome", "Brave,Chromium"),
    ],
)
def test_brands_of_structured_user_agents(browser: str, brands: str) -> None:
    assert agents.browser_of(brands.split(",")) == browser


@given(st.text())
def test_any_text_yields_a_listed_system_and_browser(text: str) -> None:
    system, browser = agents.parse(text)
    assert system in agents.SYSTEMS
    assert browser in agents.BROWSERS
    assert agents.fold_os(text) in agents.SYSTEMS


def test_long_user_agents_are_cut_before_they_are_remembered() -> None:
    firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:139.0) Gecko/20100101 Firefox/139.0 "
    padded = firefox.ljust(agents.MAX_AGENT)
    assert agents.parse(padded + "Edg/1.0") == ("linux", "firefox")
    misses = agents._parse.cache_info().misses
    assert agents.parse(padded + "x" * 100_000) == ("linux", "firefox")
    assert agents._parse.cache_info().misses == misses
    assert agents._parse.cache_info().maxsize == agents.CACHED_AGENTS
