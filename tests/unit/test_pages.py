"""The documentation names everything a user can reach, names nothing else, and its links hold."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.described import DOCUMENT

from snapbid.base.settings import KNOWN_ELSEWHERE, VARIABLES
from snapbid.cli.main import main
from snapbid.metrics.definitions import DEFINITIONS
from snapbid.operations.dashboard.server import DATA_PATH, METRICS_PATH
from snapbid.operations.dashboard.server import PAGES as OPS_PAGES
from snapbid.partners.docs.routes import ROUTES as DESCRIBE_ROUTES
from snapbid.server.app import HEALTH_PATHS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "snapbid"

PAGES = [
    ROOT / "README.md",
    PACKAGE / "README.md",
    *(
        PACKAGE / room / "README.md"
        for room in (
            "bidding",
            "catalog",
            "drain",
            "events",
            "campaigns",
            "ledger",
            "server",
            "loadtest",
        )
    ),
    PACKAGE / "campaigns" / "EXAMPLES.md",
    PACKAGE / "auctionlog" / "README.md",
    PACKAGE / "server" / "PRODUCTION.md",
    PACKAGE / "server" / "RUNBOOK.md",
    ROOT / "tests" / "README.md",
    ROOT / "bench" / "README.md",
]
LINKED = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    ROOT / ".github" / "CONTRIBUTING.md",
    ROOT / ".github" / "SECURITY.md",
    ROOT / "tests" / "PROMISES.md",
    ROOT / "tests" / "FAULTS.md",
    PACKAGE / "reference" / "data" / "ATTRIBUTION.md",
    PACKAGE / "operations" / "preview" / "ATTRIBUTION.md",
]
LOAD_PAGE = PACKAGE / "loadtest" / "README.md"
TEXT = "\n".join(page.read_text() for page in PAGES)

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
CELL = re.compile(r"(?<!\\)\|")
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
PROJECT_FILE = re.compile(r"(?:src|tests|bench|native)/[\w./-]*|[\w.-]+(?:/[\w.-]+)+\.py")
PROMPT = re.compile(r"(?<![\w/.-])(?:\.venv/bin/)?snapbid ((?:[a-z]+ ?)+)")


def identify(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command and group below a command: `campaign`, `campaign import`."""
    if path:
        yield " ".join(path)
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))


def options(command: click.Command) -> Iterator[str]:
    """The long options of a command and of all below it; `--version` needs no explanation."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (
                name for name in parameter.opts if name.startswith("--") and name != "--version"
            )
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from options(child)


def routes() -> set[str]:
    """The paths of the public port, as the API's description writes them, and of the private one.

    A page's own style and script are part of that page.
    """
    private = {path for path in OPS_PAGES if "." not in path} | {METRICS_PATH, DATA_PATH}
    return {*DOCUMENT["paths"], *DESCRIBE_ROUTES, *HEALTH_PATHS, *private}


def names(text: str, name: str) -> bool:
    """Whether a text holds a name that is not part of a longer one."""
    before = "" if name.startswith("/") else r"(?<![\w-])"  # a path may follow a host
    return re.search(rf"{before}{re.escape(name)}(?![\w/-])", text) is not None


def code_of(text: str) -> str:
    """The code blocks and the inline code of a page."""
    prose = FENCE.sub("", text)
    blocks = [block.group() for block in FENCE.finditer(text)]
    return "\n".join([*blocks, *INDENTED.findall(prose), *INLINE.findall(prose)])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    made: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        shown = LINK.sub(lambda link: link.group()[1:].partition("]")[0], heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = next(n for n in range(len(made) + 1) if (f"{slug}-{n}" if n else slug) not in made)
        made.add(f"{slug}-{number}" if number else slug)
    return made


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links within the repository."""
    for target in LINK.findall(INLINE.sub("", FENCE.sub("", page.read_text()))):
        if not re.match(r"[a-z]+:", target):
            yield target


def test_questions_that_no_alert_asks_have_a_section() -> None:
    page = (PACKAGE / "server" / "RUNBOOK.md").read_text()
    for heading, commands in {
        "A campaign or a budget that does not spend": ("explain", "campaign list", "creative list"),
        "An SSP that complains about 204s": ("golive", "explain", "ssp list"),
        "A partner who sends garbage": ("golive", "ssp set", "key revoke"),
        "Figures that differ": ("reconcile",),
    }.items():
        section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        assert [name for name in commands if f"snapbid {name}" not in section] == []
        assert heading.lower().replace(" ", "-") in anchors(PACKAGE / "server" / "RUNBOOK.md")


# -- what must be named --------------------------------------------------------------------------


def test_every_setting_is_named_and_no_other() -> None:
    named = set(re.findall(r"SNAPBID_[A-Z_]+[A-Z]", TEXT))
    assert set(VARIABLES.values()) - named == set()
    assert named - set(VARIABLES.values()) - KNOWN_ELSEWHERE == set()


def test_every_route_is_named() -> None:
    assert {path for path in routes() if not names(TEXT, path)} == set()


def test_every_command_is_named() -> None:
    assert {command for command in commands(main) if not names(code_of(TEXT), command)} == set()


def test_every_option_is_named() -> None:
    assert {option for option in options(main) if not names(TEXT, option)} == set()


def test_every_metric_is_named() -> None:
    assert {metric for metric in DEFINITIONS if not names(TEXT, metric)} == set()


def test_the_page_of_the_load_test_names_its_options() -> None:
    page = LOAD_PAGE.read_text()
    assert {name for name in options(main.commands["load"]) if not names(page, name)} == set()


# -- what is named must exist --------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_no_page_names_a_command_that_does_not_exist(page: Path) -> None:
    known = set(commands(main))
    groups = {name for name, command in main.commands.items() if isinstance(command, click.Group)}
    unknown = set()
    for words in PROMPT.findall(code_of(page.read_text())):
        first, *rest = words.split()
        command = " ".join([first, *rest[:1]]) if first in groups and rest else first
        if command not in known:
            unknown.add(command)
    assert unknown == set()


@pytest.mark.parametrize("page", PAGES, ids=identify)
def test_no_page_names_a_metric_that_does_not_exist(page: Path) -> None:
    series = {f"{name}_{part}" for name in DEFINITIONS for part in ("bucket", "sum", "count")}
    named = set(re.findall(r"`(snapbid_[a-z_]+)", page.read_text()))
    assert named - series - set(DEFINITIONS) == set()


@pytest.mark.parametrize("page", LINKED, ids=identify)
def test_links_and_anchors_resolve(page: Path) -> None:
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", LINKED, ids=identify)
def test_a_command_for_some_tests_of_a_file_selects_any(page: Path) -> None:
    for file, word in re.findall(r"((?:tests|bench)/\S+\.py) -k (\w+)", page.read_text()):
        tests = re.findall(r"^(?:async )?def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
        assert any(word in test for test in tests), f"{file} -k {word}"


@pytest.mark.parametrize("page", LINKED, ids=identify)
def test_files_that_are_named_exist(page: Path) -> None:
    bases = (page.parent, ROOT, PACKAGE)
    named = {
        path
        for code in INLINE.findall(FENCE.sub("", page.read_text()))
        for path in code.split()
        if PROJECT_FILE.fullmatch(path)
    }
    assert {path for path in named if not any((base / path).exists() for base in bases)} == set()


@pytest.mark.parametrize("name", ["FAULTS.md", "PROMISES.md"])
def test_the_tests_of_faults_and_promises_exist(name: str) -> None:
    rows = [line for line in (ROOT / "tests" / name).read_text().splitlines() if "|" in line]
    named = {code for row in rows for code in INLINE.findall(row.rsplit("|", 2)[1])}
    paths = {code.partition("::")[0] for code in named if "/" in code}
    assert paths
    assert {path for path in paths if not (ROOT / "tests" / path).exists()} == set()


@pytest.mark.parametrize("page", LINKED, ids=identify)
def test_table_rows_have_the_columns_of_their_header(page: Path) -> None:
    torn, columns = [], None
    for line in FENCE.sub("", page.read_text()).splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        cells = len(CELL.findall(re.sub(r"`[^`]*`", "", line)))
        columns = columns or cells
        if cells != columns or not line.rstrip().endswith("|"):
            torn.append(line)
    assert torn == []
