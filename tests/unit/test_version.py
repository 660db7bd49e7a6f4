"""Each build has a version of its own, with its commit, however its sources came here."""

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version
from support.commands import succeed

from snapbid.base.version import RELEASE, ROOT, of_sources, version

FILE = "src/snapbid/base/version.py"


def git(checkout: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    command = ("git", "-C", str(checkout), *identity, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of a project with this project's version file."""
    root = tmp_path / "checkout"
    for name in (FILE, ".gitattributes"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    return root


def test_versions_name_their_commit(checkout: Path) -> None:
    first = of_sources(checkout)
    assert first
    assert first.startswith(f"{RELEASE}+")
    assert first.endswith(f".g{git(checkout, 'rev-parse', 'HEAD')[:8]}")
    assert str(Version(first)) == first  # so the name of the wheel has it as it is
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "second")
    assert of_sources(checkout) != first
    assert Version(first).public == RELEASE


def test_sources_that_differ_from_their_commit_are_another_version(checkout: Path) -> None:
    versions = {of_sources(checkout)}
    for text in ("one", "two"):
        (checkout / FILE).write_text(text)
        versions.add(of_sources(checkout))
    git(checkout, "checkout", "--quiet", FILE)
    (checkout / "src" / "new.py").touch()
    versions.add(of_sources(checkout))
    assert len(versions) == 4
    assert all(str(Version(found)) == found for found in versions if found)


def test_an_archive_has_the_version_of_its_commit(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "archive", "--output", str(tmp_path / "archive.zip"), "HEAD")
    shutil.unpack_archive(tmp_path / "archive.zip", tmp_path / "archive")
    unpacked = runpy.run_path(str(tmp_path / "archive" / FILE))
    assert unpacked["of_sources"](tmp_path / "archive") == of_sources(checkout)


def test_a_source_distribution_has_its_version(tmp_path: Path) -> None:
    assert of_sources(tmp_path) is None
    (tmp_path / "PKG-INFO").write_text("Name: snapbid\nVersion: 1.2.3\n\nA page\n")
    assert of_sources(tmp_path) == "1.2.3"


def test_an_enclosing_repository_is_ignored(checkout: Path) -> None:
    inner = checkout / "vendor" / "snapbid"
    inner.mkdir(parents=True)
    assert of_sources(inner) is None


def test_the_newest_release_of_the_changelog_is_this_one() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", changelog, re.MULTILINE)
    assert releases[0] == RELEASE


def test_version_is_shown() -> None:
    assert succeed({}, "--version") == f"snapbid, version {version()}\n"
