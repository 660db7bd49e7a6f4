"""`make release` on a copy of the repository: what it refuses, commits and builds."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pip
import pytest

from snapbid.base.version import ROOT

VERSION = "98.7.6"
IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "tests"), ("EMAIL", "tests@example.com"))
}
WORKS = """
import snapbid.bidding._bid_path, snapbid.catalog._builder
from importlib.util import find_spec
print(snapbid.__file__, find_spec("snapbid.embedded._passwd").origin)
"""


class Done(NamedTuple):
    status: int
    output: str


class Repository:
    """A repository of its own, with the tracked files as they are now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Not as a part of the make that may run this test: it would say which folders it enters.
        # And what is built must not find the sources of the tests.
        foreign = ("MAKE", "PYTHONPATH")
        own = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
        # Compiling what pip installs would take longer than what then is imported of it; the option
        # is negative, and its variable is not.
        self.environ = {**own, **IDENTITY, "CFLAGS": "-O0", "PIP_NO_COMPILE": "0"}
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"],
            capture_output=True, text=True,
        )  # fmt: skip
        if listed.returncode:
            pytest.skip("not a git repository")
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, path / name)
        self.run("git", "init", "--quiet")
        self.commit()

    def run(self, *command: str) -> str:
        done = self.attempt(*command)
        assert done.status == 0, done.output
        return done.output

    def attempt(self, *command: str) -> Done:
        done = subprocess.run(
            command, cwd=self.path, env=self.environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Done(done.returncode, done.stdout)

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--allow-empty", "--message", "changes")

    def make_environment(self) -> None:
        """An environment with what builds, which is all that `make wheel` takes from it."""
        self.run(sys.executable, "-m", "venv", "--without-pip", ".venv")
        (packages,) = self.path.glob(".venv/lib/python*/site-packages")
        shutil.copytree(Path(pip.__file__).parent, packages / "pip")  # installing it takes seconds
        pinned = ("--require-hashes", "-r", "requirements/build.txt")
        self.run(".venv/bin/python", "-m", "pip", "--quiet", "install", *pinned)
        (self.path / ".venv" / ".run").touch()

    def refusal(self, version: str) -> str:
        """What `make release` says to a version that it refuses, with nothing changed."""
        before = self.run("git", "rev-parse", "HEAD"), self.run("git", "status", "--porcelain")
        done = self.attempt("make", "release", f"VERSION={version}")
        assert done.status, done.output
        after = self.run("git", "rev-parse", "HEAD"), self.run("git", "status", "--porcelain")
        assert before == after
        (line,) = re.findall(r"^no release: (.+)$", done.output, re.MULTILINE)
        return str(line)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "snapbid")


def test_a_release(repository: Repository, tmp_path: Path) -> None:
    changelog = repository.path / "CHANGELOG.md"
    text = re.sub(r"\n## Unreleased\n.*?(?=\n## )", "", changelog.read_text(), flags=re.DOTALL)
    changelog.write_text(text)
    repository.commit()
    assert repository.refusal(VERSION) == "the newest section of CHANGELOG.md is not ## Unreleased"
    changelog.write_text(text.replace("\n## ", "\n## Unreleased\n\n- New.\n\n## ", 1))
    assert repository.refusal(VERSION) == "there are changes that are not committed"
    repository.commit()
    assert repository.refusal("") == repository.refusal("next") == "say which: VERSION=0.2.0"
    assert repository.refusal("0.0.9").startswith("0.0.9 comes before ")

    repository.make_environment()
    told = repository.run("make", "release", f"VERSION={VERSION}")
    commit = repository.run("git", "rev-parse", "--short", "HEAD").strip()
    tag = f"git tag --annotate v{VERSION} --message 'Snapbid {VERSION}' {commit}"
    assert told.splitlines()[-1] == tag
    today = f"{datetime.now(UTC):%F}"
    changed = repository.run("git", "show", "--format=%s", "--unified=0").splitlines()
    lines = [line for line in changed if re.match(r"[+-](?![+-])", line)]
    assert (changed[0], lines[:2], lines[3:]) == (
        f"release: {VERSION}",
        ["-## Unreleased", f"+## {VERSION} ({today})"],
        [f'+RELEASE: Final = "{VERSION}"'],
    )
    check_built(repository, tmp_path)

    repository.run("sh", "-c", tag)
    assert repository.refusal(VERSION) == f"v{VERSION} is tagged"


def check_built(repository: Repository, tmp_path: Path) -> None:
    """What is in dist/: sums that are right, sources of which it was built, and a program."""
    dist = repository.path / "dist"
    built = {path.name: path for path in dist.iterdir()}
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=dist, check=True)
    (wheel,) = [name for name in built if name.endswith(".whl")]
    version = wheel.split("-")[1]
    assert version.startswith(f"{VERSION}+")
    summed = (dist / "SHA256SUMS").read_text().splitlines()
    named = {f"snapbid-{version}.tar.gz", wheel, wheel.replace(".whl", ".cdx.json")}
    assert {line.split("  ")[1] for line in summed} == named == built.keys() - {"SHA256SUMS"}
    with tarfile.open(dist / f"snapbid-{version}.tar.gz") as sources:
        members = sources.getmembers()
    assert {(member.uid, member.uname) for member in members} == {(0, "")}
    assert len({member.mtime for member in members}) == 1
    packed = {member.name.partition("/")[2] for member in members}
    tracked = repository.run("git", "ls-files", "src", "native", "requirements").split()
    assert set(tracked) <= packed
    bill = json.loads((dist / wheel.replace(".whl", ".cdx.json")).read_text())
    assert "snapbid" in {component["name"] for component in bill["components"]}
    server = repository.path / "build" / "wheel" / "server" / "bin"

    def told(program: str, *arguments: str) -> str:
        command = [str(server / program), *arguments]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=repository.environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    paths = told("python", "-c", WORKS).split()
    assert all(Path(path).is_relative_to(server.parent) for path in paths)
    assert told("snapbid", "--version") == f"snapbid, version {version}\n"
