"""What the source promises of itself: directions of imports, sizes, no traces of one machine."""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.mark.expression import Expression, ExpressionMatcher
from support.tiers import LONG

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "snapbid"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONG_FILES = {  # why they are over 800 lines
    "native/snapbid/bidding/_bid_path.pyx": "a bid, from a request's headers to its answer",
    "native/snapbid/catalog/_builder.pyx": "all that writes the index",
    "native/snapbid/catalog/_index.pyx": "all that answers a query of the index",
    "native/snapbid/catalog/_request.pyx": "all that is read from a request",
}
LONGEST = 800

# Imports and cimports run one way: from a room to those named here, which are of its own layer or
# of one below. What is not named is not imported, even where the layers would allow it.
LAYERS = {
    "programs": {
        "cli": "server drain embedded operations loadtest report campaigns ledger "
        "redisclient warehouse reference base",
        "server": "partners operations auctionlog bidding report events campaigns catalog ledger "
        "queues warehouse reference redisclient metrics base",
        "drain": "auctionlog operations events campaigns ledger queues warehouse reference "
        "redisclient metrics base",
        "embedded": "drain operations warehouse redisclient base",
    },
    "surfaces": {
        "partners": "operations bidding report events campaigns queues warehouse reference base",
        "operations": "auctionlog bidding campaigns catalog ledger queues warehouse reference "
        "redisclient metrics base",
        "loadtest": "bidding events reference base",
        "auctionlog": "ledger metrics base",
    },
    "rooms": {
        "bidding": "campaigns catalog ledger queues reference metrics base",
        "report": "queues warehouse redisclient base",
        "events": "campaigns catalog queues warehouse reference metrics base",
    },
    "domain and stores": {
        "catalog": "campaigns warehouse reference base",
        "campaigns": "reference",
        "ledger": "queues redisclient metrics base",
        "queues": "redisclient base",
        "warehouse": "campaigns base",
        "reference": "",
    },
    "base": {"redisclient": "base", "metrics": "", "base": ""},
}
EDGES = {room: set(to.split()) for rooms in LAYERS.values() for room, to in rooms.items()}
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS.values()) for room in rooms}
FORBIDDEN_IN_CAMPAIGNS = {"redis", "asyncpg", "granian", "http", "uvloop"}
TEXT = {".py", ".pyx", ".pxd", ".pyi", ".h", ".sql", ".md", ".toml", ".json", ".jsonl", ".lua"}


def part(path: Path) -> str:
    """The room or the top-level module of a file: `exchange`, `up`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


@functools.cache
def imports(path: Path) -> set[str]:
    """The absolute names of all modules that a file imports, names taken from a package too."""
    package = ["snapbid", *path.relative_to(PACKAGE).parent.parts]
    modules = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            modules |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return modules


def own_parts(path: Path) -> set[str]:
    names = (name.split(".") for name in imports(path))
    return {name[1] for name in names if name[0] == "snapbid" and {*name[1:2]} & set(DEPTH)}


def test_long_files_exist() -> None:
    assert [name for name in LONG if not (ROOT / "tests" / name).is_file()] == []


COLLECT = """
import json, sys, pytest

class Marks:
    def pytest_collection_finish(self, session):
        names = {item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items}
        with open(sys.argv[1], "w") as file:
            json.dump(names, file)

sys.exit(pytest.main(["-n0", "--collect-only", "-qq"], plugins=[Marks()]))
"""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The marks of every test, by its id."""
    file = tmp_path_factory.mktemp("marks") / "marks.json"
    command = [sys.executable, "-c", COLLECT, str(file)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return {test: set(names) for test, names in json.loads(file.read_text()).items()}


def among(names: set[str]) -> ExpressionMatcher:
    return lambda name, /, **_: name in names


@pytest.mark.long
def test_each_test_is_in_one_tier(
    marks: dict[str, set[str]], request: pytest.FixtureRequest
) -> None:
    made = dict(re.findall(r"^(\w+) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    files = {test.partition("::")[0] for test in marks}

    def selected(expression: str) -> set[str]:
        compiled = Expression.compile(expression)
        return {test for test, names in marks.items() if compiled.evaluate(among(names))}

    def ignored(expression: str) -> set[str]:
        """The files that tests/conftest.py does not import."""
        config = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
        (ignores,) = [
            plugin.pytest_ignore_collect
            for plugin in request.config.pluginmanager.get_plugins()
            if getattr(plugin, "__file__", None) == str(ROOT / "tests" / "conftest.py")
        ]
        return {name for name in files if ignores(collection_path=ROOT / name, config=config)}

    every_change, rest = selected(made["IN_TEST"]), selected(made["IN_TEST_ALL"])
    folders = tuple(made["CHECKED"].split())
    checked = {test for test in selected(made["IN_CHECK"]) if test.startswith(folders)}
    assert every_change | rest == marks.keys()
    assert not every_change & rest
    assert checked < every_change
    assert len(checked) > 1_000
    long_files = {f"tests/{name}" for name in LONG}
    assert ignored(made["IN_TEST"]) == ignored(made["IN_CHECK"]) == long_files
    assert not {test for test in every_change if test.partition("::")[0] in long_files}
    assert ignored(made["IN_TEST_ALL"]) == files - {test.partition("::")[0] for test in rest}
    assert ignored("") == ignored("long or not long") == set()


def test_the_package_takes_its_data_along() -> None:
    """A wheel has only what `package-data` names; an editable install hides that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["snapbid"]
    packed = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    data = {path for path in tracked() if PACKAGE in path.parents and path.suffix != ".py"}
    assert data
    assert data - packed == set()


def tracked() -> list[Path]:
    """The files of the repository: tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("not a git repository")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=identify)
def test_imports_run_one_way(path: Path) -> None:
    mine, others = part(path), own_parts(path) - {part(path)}
    if mine == "__main__":
        assert others == {"cli"}
        return
    if mine == "__init__":
        assert not others
        return
    assert mine in EDGES, f"{mine} is in none of the layers above"
    assert not others - EDGES[mine], f"{identify(path)} imports {sorted(others - EDGES[mine])}"


def test_no_field_of_a_struct_hides_a_type() -> None:
    """Since Python 3.14, annotations are evaluated later: `date: date` would be the field."""
    hidden = []
    for node in (node for path in MODULES for node in nodes_of(path)):
        if isinstance(node, ast.ClassDef) and any(
            ast.unparse(base).endswith("Struct") for base in node.bases
        ):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            types = [name for each in fields for name in ast.walk(each.annotation)]
            used = {name.id for name in types if isinstance(name, ast.Name)}
            hidden += [(node.name, name) for name in used & {ast.unparse(f.target) for f in fields}]
    assert hidden == []


def test_each_edge_is_needed_and_none_runs_up() -> None:
    imported = {room: set[str]() for room in EDGES}
    for path in MODULES:
        if part(path) in EDGES:
            imported[part(path)] |= own_parts(path) - {part(path)}
    for room, taken in cimported().items():
        imported[room] |= taken
    assert imported == EDGES
    assert all(DEPTH[to] >= DEPTH[room] for room, others in EDGES.items() for to in others)
    assert set(TopologicalSorter(EDGES).static_order()) == set(DEPTH)  # else a CycleError


def cimported() -> dict[str, set[str]]:
    """The rooms from which the native modules of each room cimport."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "native" / "snapbid").rglob("*.p[xy][dx]")):
        room = path.relative_to(ROOT / "native" / "snapbid").parts[0]
        text = path.read_text()
        names = re.findall(r"^\s*from snapbid\.(\w+)\S* c?import", text, re.MULTILINE)
        found.setdefault(room, set()).update(set(names) - {room})
    return found


def test_benchmarks_and_tests_do_not_import_each_other() -> None:
    """Apart from the benchmarks' own tests."""
    foreign = (("bench", r"^(?:from|import) support\b"), ("tests", r"^(?:from|import) bench\b"))
    assert [
        path
        for folder, imported in foreign
        for path in (ROOT / folder).rglob("*.py")
        if not path.is_relative_to(ROOT / "bench" / "tests")
        and re.search(imported, path.read_text(), re.MULTILINE)
    ] == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "campaigns").glob("*.py")), ids=identify)
def test_campaigns_know_no_http_and_no_stores(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & FORBIDDEN_IN_CAMPAIGNS


def test_native_code_imports_no_project_python() -> None:
    """But for the bid path, which calls the steps that few requests need, and for the mapping of
    domains beyond ASCII, which campaigns and requests must share.
    """
    flow = ROOT / "native" / "snapbid" / "bidding" / "_bid_path.pyx"
    sources = [*(ROOT / "native").rglob("*.pyx"), *(ROOT / "native").rglob("*.pxd")]
    own = {".".join(path.relative_to(ROOT / "native").with_suffix("").parts) for path in sources}
    assert flow in sources
    for path in set(sources) - {flow}:
        taken = re.findall(r"^\s*(?:from|c?import)\s+(snapbid\S*)", path.read_text(), re.MULTILINE)
        assert set(taken) <= own | {"snapbid.campaigns.domains"}, f"{identify(path)}: {taken}"


def test_no_path_of_one_machine() -> None:
    here = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm)/")
    traces = [
        f"{identify(path)}:{number}"
        for path in tracked()
        if path.suffix in TEXT or path.name == "Makefile"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if here.search(line) and path != Path(__file__)
    ]
    assert not traces


OLD_TERMS = re.compile(
    r"purse|granule|banker(?!\*)|sighting|muster|\bresting\b|\bstrangers?\b"
    r"|\b(is|are|was|were|being|be) away\b|_away\b|[\"`.]away\b|(redis|warehouse|shard)away"
    r"|(store|ssp|recent|day)_?evidence|row_?segment",
    re.IGNORECASE,
)


def test_no_private_jargon() -> None:
    """The glossary in `src/snapbid/README.md` has the field's."""
    own = [path for path in tracked() if {PACKAGE, ROOT / "native"} & set(path.parents)]
    found = [
        f"{identify(path)}:{number}: {line.strip()}"
        for path in own
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if OLD_TERMS.search(line)
    ]
    assert not found


def test_no_file_has_grown_long() -> None:
    counted = {
        identify(path): len(path.read_text().splitlines())
        for path in tracked()
        if path.suffix in {".py", ".pyx"}
    }
    assert {name for name, lines in counted.items() if lines > LONGEST} <= set(LONG_FILES)
    assert set(LONG_FILES) <= set(counted)
