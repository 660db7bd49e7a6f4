"""The version of this build: its release, or the last release before it, and its commit.

`0.1.0+202611261636.g76ea1094` was built from commit 76ea1094, made at 16:36 UTC on that day;
uncommitted changes add their own digest, such as `.d1f2e3d4c`. A git archive, a source distribution
and a wheel carry their version. setup.py also runs this file.
"""

import hashlib
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

RELEASE: Final = "0.1.0"
ARCHIVED: Final = "$Format:%ct %H$"  # `git archive` puts time and commit here
ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = ("native", "src", "pyproject.toml", "setup.py")
DIGITS: Final = 8


@cache
def version() -> str:
    """Return the version of the checkout, or of the installed package."""
    if (ROOT / "setup.py").is_file() and (found := of_sources(ROOT)):
        return found
    return metadata.version("snapbid")


def of_sources(root: Path) -> str | None:
    """Return the version of a source directory; None if neither git nor a file gives it."""
    if (root / ".git").exists() and (found := _of_checkout(root)):
        return found
    if not ARCHIVED.startswith("$"):
        return _of_commit(ARCHIVED)
    try:
        lines = (root / "PKG-INFO").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return next((line[9:].strip() for line in lines if line.startswith("Version: ")), None)


def _of_checkout(root: Path) -> str | None:
    """Return the version of a checkout; None if git is missing or refuses to read it."""
    try:
        found = _of_commit(_git(root, "log", "-1", "--format=%ct %H").decode())
        changes = _git(root, "status", "--porcelain", "--", *SOURCES)
        if not changes:
            return found
        changes += _git(root, "diff", "--binary", "--no-ext-diff", "HEAD", "--", *SOURCES)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{found}.d{hashlib.sha256(changes).hexdigest()[:DIGITS]}"


def _of_commit(time_and_commit: str) -> str:
    seconds, commit = time_and_commit.split()
    moment = datetime.fromtimestamp(int(seconds), UTC)
    return f"{RELEASE}+{moment:%Y%m%d%H%M}.g{commit[:DIGITS]}"


def _git(root: Path, *arguments: str) -> bytes:
    command = ("git", "-C", str(root), *arguments)
    return subprocess.run(command, check=True, capture_output=True).stdout


if __name__ == "__main__":
    print(of_sources(ROOT) or RELEASE)
