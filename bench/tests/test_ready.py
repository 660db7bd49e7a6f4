"""Tests of what happens before a run, and of its end if it is interrupted."""

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from bench import __main__, about, ready

ROOT = Path(__file__).parents[2]
PROGRAMS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "bench").rglob("*.py"))
    if 'if __name__ == "__main__"' in path.read_text() and path.parent.name != "tests"
]
# Runs each module's help in a process that lacks what only benchmarks need.
HELP = """
import contextlib, io, os, runpy, sys
for missing in ("fastapi", "jsonschema", "numpy", "pydantic", "pyroaring", "uvicorn"):
    sys.modules[missing] = None
for module in sys.argv[1:]:
    sys.argv, said = [module, "--help"], io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        assert not exit.code, (module, exit.code)
    assert said.getvalue().lower().startswith("usage: "), (module, said.getvalue())
"""
# Whatever whoever runs the tests ignores, as nohup does.
DEFAULT = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
"""
# A run that starts a server and waits, and a benchmark of that run alone.
RUN = """
import sys, time
from bench import command, ready
from bench.processes import ServerProcess
command.check = lambda: None

@command.command("ledger")
def main():
    with command.scratch() as folder:
        server = ServerProcess(folder / "log", {}, 1, "http.server", "--bind", "127.0.0.1", "0")
        try:
            print(server._process.pid, flush=True)
            time.sleep(60)
        finally:
            server.stop()
            time.sleep(0.5)  # longer than the parent would wait of itself
            print("stopped", flush=True)

main(["--output", "/dev/null"])
"""
# `python -m bench ledger`, whose runs are `./python`.
BENCH = """
import sys
from pathlib import Path
from bench import __main__ as bench
bench.ready.check = lambda: None
bench.OUTPUT = Path.cwd() / "output"
sys.executable, sys.argv = str(Path.cwd() / "python"), ["bench", "ledger"]
bench.main()
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of a tree with an extension that is newer than its sources."""
    monkeypatch.setattr(about, "ROOT", tmp_path)
    monkeypatch.setattr(ready, "ROOT", tmp_path)
    files = {
        "pyproject.toml": "[project.optional-dependencies]\nbench = ['msgspec[yaml]>=0.1']\n",
        "native/layout.h": "",
        "native/snapbid/a/_one.pyx": "",
        "native/snapbid/a/_two.pyx": "",
        "workload/pools.py": "",
        "requirements/run.txt": "",
        "src/snapbid/a/_one.cpython-311-x86_64-linux-gnu.so": "",
        "src/snapbid/a/_two.cpython-311-x86_64-linux-gnu.so": "",
    }
    for place, (name, text) in enumerate(files.items()):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (place, place))
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.example", "-C", str(tmp_path))
    for command in ("init", "add .", "commit -m one"):
        subprocess.run([*git, *command.split()], check=True, capture_output=True)
    return tmp_path


def test_a_tree_in_order_is_measured(tree: Path) -> None:
    ready.check()


@pytest.mark.parametrize("source", ["snapbid/a/_one.pyx", "layout.h"])
def test_an_extension_older_than_its_sources_is_not_measured(tree: Path, source: str) -> None:
    os.utime(tree / "native" / source)
    with pytest.raises(SystemExit, match=f"native/{source} is newer.*: run make build"):
        ready.check()


def test_a_header_is_compiled_where_it_is_used(tree: Path) -> None:
    """The build compiles only what depends on a source that has changed."""
    os.utime(tree / "native/layout.h", (100, 100))
    os.utime(tree / "src/snapbid/a/_two.cpython-311-x86_64-linux-gnu.so", (101, 101))
    ready.check()


def test_a_missing_package_is_named_with_its_remedy(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(SystemExit, match=r"msgspec is not installed: run make \.venv/\.bench"):
        ready.check()


@pytest.mark.parametrize(
    "changed", ["workload/pools.py", "requirements/run.txt", "native/layout.h"]
)
def test_a_commit_is_marked_if_what_is_measured_was_changed(tree: Path, changed: str) -> None:
    assert not about.commit().endswith(", changed")
    (tree / changed).write_text("# changed\n")
    assert about.commit().endswith(", changed")


def test_figures_of_a_busy_machine_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    monkeypatch.setattr("sys.argv", ["bench", "ledger", "--keep"])
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: pytest.fail("it runs"))
    with pytest.raises(SystemExit):
        __main__.main()
    assert "--keep: the load is 1.5" in capsys.readouterr().err


def test_the_load_of_earlier_runs_is_not_that_of_other_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    assert about.about()["load_before"] == 1.5
    monkeypatch.setenv(about.LOAD_BEFORE, "0.3")
    assert about.about()["load_before"] == 0.3


def test_help_needs_no_package_and_writes_nothing(tmp_path: Path) -> None:
    assert {"bench.__main__", "bench.catalog_run", "bench.market.corpus"} <= set(PROGRAMS)
    modules = [program.removesuffix(".__main__") for program in PROGRAMS]
    with run_python(tmp_path, "-Wignore", "-c", HELP, *modules) as process:
        assert not process.communicate(timeout=60)[1]
    assert not process.returncode
    assert not list(tmp_path.iterdir())


def run_python(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start Python in a folder, which is also that of temporary files."""
    path = f"{ROOT}:{ROOT / 'src'}"
    environ = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": path}
    pipe = subprocess.PIPE
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=folder, env=environ, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("through", ["the run", "the benchmark"])
def test_an_interrupted_run_stops_its_servers(
    tmp_path: Path, number: signal.Signals, through: str
) -> None:
    (tmp_path / "run.py").write_text(DEFAULT + RUN)
    (tmp_path / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path}/run.py\n")
    (tmp_path / "python").chmod(0o755)
    own = ["run.py"] if through == "the run" else ["-c", DEFAULT + BENCH]
    with run_python(tmp_path, *own) as process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        process.send_signal(number)
        output, error = process.communicate(timeout=30)
    assert process.returncode == ready.INTERRUPTED
    assert error == "interrupted; nothing was kept\n"
    assert output == "stopped\n"
    assert not Path(f"/proc/{server}").exists()
    assert not list(tmp_path.glob("snapbid-bench-*"))
