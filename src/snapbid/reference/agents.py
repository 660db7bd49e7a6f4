"""Operating systems and browsers, mapped to the lists of contract 3 (`os`, `browser`).

Spellings of operating systems (`device.os`, a campaign's targeting, parsed user agents) are
compared ignoring case, spaces, dots, underscores, hyphens, slashes, quotes and a trailing version.
Unknown spellings are `other`. A system missing from the list counts as the one that its user agent
names: Fire OS and Android TV are `android`, Windows Phone is `windows`, iPadOS is `ios`; tvOS,
watchOS, visionOS, Roku OS, HarmonyOS and KaiOS are `other`.

Browsers are identified by product: in-app web views count as the browser that they embed (`chrome`
on Android, `safari` on iOS); products with other names (Silk, Yandex, Vivaldi, the Google app,
Facebook) are `other`.
"""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ua_parser import PartialResult

OTHER = "other"
SYSTEMS = (
    "ios",
    "android",
    "windows",
    "macos",
    "linux",
    "chromeos",
    "tizen",
    "webos",
    OTHER,
)
BROWSERS = ("chrome", "safari", "firefox", "edge", "samsung", "opera", OTHER)

MAX_AGENT = 1024
"""User agents are truncated to this many characters before parsing and caching."""

CACHED_AGENTS = 8192
CACHED_SPELLINGS = 4096
MAX_SPELLING = 64

OS_SPELLINGS: dict[str, str] = {
    "ios": (
        "ios, iphone, iphone os, apple ios, apple iphone, ipad, ipados, ipad os, ipod, ipod touch"
    ),
    "android": (
        "android, android os, google android, android tv, google tv, wear os, fire os, fire tv, "
        "amazon fire os, chromecast android"
    ),
    "windows": "windows, windows nt, microsoft windows, ms windows, win",
    "macos": (
        "macos, mac os, mac os x, os x, mac, macintosh, macintel, apple macos, apple mac os, "
        "apple mac os x, apple os x"
    ),
    "linux": (
        "linux, gnu/linux, ubuntu, kubuntu, xubuntu, debian, fedora, centos, red hat, opensuse, "
        "suse, arch linux, manjaro, gentoo, linux mint, mint, slackware, mandriva, mageia, puppy, "
        "raspbian, raspberry pi os, elementary os, pop!_os, alpine linux, oracle linux, "
        "chromecast linux"
    ),
    "chromeos": "chrome os, chromium os, cros, google chrome os",
    "tizen": "tizen, tizen os, tizen tv, samsung tizen",
    "webos": "webos, web0s, webos tv, lg webos, lg web0s, hp webos",
}
"""The spellings of each operating system, separated by commas."""

# Prefixes of spellings with a suffix other than a version: "Windows Vista", "Linux armv7l".
_OS_PREFIXES: tuple[tuple[str, str], ...] = (
    ("windows", "windows"),
    ("android", "android"),
    ("linux", "linux"),
    ("macosx", "macos"),
    ("tizen", "tizen"),
    ("webos", "webos"),
    ("web0s", "webos"),
    ("iphone", "ios"),
    ("ipad", "ios"),
    ("cros", "chromeos"),
    ("redhat", "linux"),
    ("ubuntu", "linux"),
)

_BROWSER_FAMILIES: dict[str, str] = {
    "Chrome": "chrome",
    "Chrome Mobile": "chrome",
    "Chrome Mobile iOS": "chrome",
    "Chrome Mobile WebView": "chrome",
    "Chromium": "chrome",
    "HeadlessChrome": "chrome",
    "Safari": "safari",
    "Mobile Safari": "safari",
    "Mobile Safari UI/WKWebView": "safari",
    "Firefox": "firefox",
    "Firefox Alpha": "firefox",
    "Firefox Beta": "firefox",
    "Firefox Mobile": "firefox",
    "Firefox iOS": "firefox",
    "Firefox Focus": "firefox",
    "Klar": "firefox",
    "Edge": "edge",
    "Edge Mobile": "edge",
    "Samsung Internet": "samsung",
    "Opera": "opera",
    "Opera Coast": "opera",
    "Opera GX": "opera",
    "Opera Mini": "opera",
    "Opera Mobile": "opera",
    "Opera Neon": "opera",
    "Opera Tablet": "opera",
    "Opera Touch": "opera",
}

_BRANDS: dict[str, str] = {
    family.casefold(): name for family, name in _BROWSER_FAMILIES.items()
} | {
    "google chrome": "chrome",
    "android webview": "chrome",
    "mozilla firefox": "firefox",
    "microsoft edge": "edge",
    "microsoft edge webview2": "edge",
}
_ENGINE = "chromium"  # the engine of most browsers, whose own brands stand beside it

_VERSION = re.compile(r"[\s._\-/(]+v?\d.*", re.DOTALL)
_SQUEEZE = re.compile(r"[\s._\-/\"]+")


def _squeeze(spelling: str) -> str:
    return _SQUEEZE.sub("", _VERSION.sub("", spelling.strip().casefold()))


_OS_BY_KEY: dict[str, str] = {
    _squeeze(spelling): name
    for name, spellings in OS_SPELLINGS.items()
    for spelling in spellings.split(",")
}


def fold_os(spelling: str) -> str:
    """Map a spelling of an operating system to contract 3's list; `other` if it is unknown."""
    return _fold_os(spelling[:MAX_SPELLING])


@lru_cache(maxsize=CACHED_SPELLINGS)
def _fold_os(spelling: str) -> str:
    key = _squeeze(spelling)
    system = _OS_BY_KEY.get(key) or _OS_BY_KEY.get(key.rstrip("0123456789"))
    if system is not None:
        return system
    for prefix, name in _OS_PREFIXES:
        if key.startswith(prefix):
            return name
    return OTHER


@cache
def _engine() -> "Callable[[str], PartialResult]":
    # Imported here: loading the parser takes 0.1 s, and campaigns need only the spellings.
    from ua_parser import Domain, load_lazy_builtins
    from ua_parser.regex import Resolver

    browsers, systems, _ = load_lazy_builtins()
    resolver = Resolver((browsers, systems, []))
    wanted = Domain.OS | Domain.USER_AGENT
    return lambda ua: resolver(ua, wanted)


def load() -> None:
    """Compile the expressions that `parse` needs, which would cost the first request 0.1 s."""
    _engine()


def parse(ua: str) -> tuple[str, str]:
    """Return a user agent's (operating system, browser), as contract 3 names them.

    Either is `other` if unknown. The `CACHED_AGENTS` most recently used results are cached.
    """
    return _parse(ua[:MAX_AGENT])


@lru_cache(maxsize=CACHED_AGENTS)
def _parse(ua: str) -> tuple[str, str]:
    result = _engine()(ua)
    system = fold_os(result.os.family) if result.os else OTHER
    browser = result.user_agent.family if result.user_agent else ""
    return system, _BROWSER_FAMILIES.get(browser, OTHER)


def browser_of(brands: Iterable[str]) -> str:
    """Return the browser named by a structured user agent's brands; `other` if unknown.

    The first known brand decides. Browsers built on Chromium also list `Chromium`, which decides
    only if no other brand does. Made-up brands (`Not/A)Brand`) are unknown.
    """
    browser = OTHER
    for each in brands:
        name = brand(each)
        if name is not None:
            browser = name
            if each.strip().casefold() != _ENGINE:
                break
    return browser


def brand(name: str) -> str | None:
    """Return the browser named by one brand of a structured user agent; None if unknown."""
    return _BRANDS.get(name[:MAX_SPELLING].strip().casefold())


class Agent(NamedTuple):
    """The details of a user agent: names from contract 3's lists, versions such as `17.4.1`."""

    browser: str
    browser_version: str | None
    os: str
    os_version: str | None
    device: str | None
    is_bot: bool


@cache
def _device_engine() -> "Callable[[str], PartialResult]":
    # Separate from `_engine`: most expressions are for devices, which bids do not need.
    from ua_parser import Domain, load_lazy_builtins
    from ua_parser.regex import Resolver

    resolver = Resolver(([], [], load_lazy_builtins()[2]))
    return lambda ua: resolver(ua, Domain.DEVICE)


@lru_cache(maxsize=CACHED_SPELLINGS)
def _details(ua: str) -> Agent:
    result = _engine()(ua)
    browser, system, device = result.user_agent, result.os, _device_engine()(ua).device
    bot = device is not None and device.family == _BOT
    return Agent(
        browser=_BROWSER_FAMILIES.get(browser.family, OTHER) if browser else OTHER,
        browser_version=_dotted(browser.major, browser.minor, browser.patch) if browser else None,
        os=fold_os(system.family) if system else OTHER,
        os_version=_dotted(system.major, system.minor, system.patch) if system else None,
        device=device.family if device is not None and not bot else None,
        is_bot=bot,
    )


def details(ua: str) -> Agent:
    """Return all details of a user agent (contract 7, `enrichment.user_agent`)."""
    return _details(ua[:MAX_AGENT])


_BOT = "Spider"  # the parser's device family for all crawlers


def _dotted(*parts: str | None) -> str | None:
    """Join the parts of a version up to the first missing one; None if the first is missing."""
    known: list[str] = []
    for part in parts:
        if part is None:
            break
        known.append(part)
    return ".".join(known) or None
