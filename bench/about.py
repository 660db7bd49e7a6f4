"""Describes the origin of a result, and writes results."""

import contextlib
import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from snapbid.base.version import version

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ("fastapi", "pydantic", "uvicorn", "redis")
PACKAGES: Final = ("granian", "msgspec", "uvloop", "cython", *PEERS)
SOURCES: Final = (
    "src",
    "native",
    "bench",
    "workload",
    "requirements",
    "pyproject.toml",
    "setup.py",
)
LOAD_BEFORE: Final = "BENCH_LOAD_BEFORE"  # the load before the first of several runs


def about() -> dict[str, Any]:
    """Return the date, the machine, the versions and the commit."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_before": float(os.environ.get(LOAD_BEFORE) or load()),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {"snapbid": version(), **_versions()},
        "commit": commit(),
    }


def load() -> float:
    return round(os.getloadavg()[0], 2)


def _versions() -> dict[str, str]:
    """Return the versions of those PACKAGES that are installed; not every run has the peers."""
    installed = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def write(result: dict[str, Any], output: Path | None) -> None:
    """Write a result as JSON to a file, or to stdout."""
    text = json.dumps(result, indent=2)
    if output is None:
        print(text)
    else:
        output.write_text(text + "\n")


def commit() -> str:
    """Return the commit of the working tree, marked if there are changes."""
    head = git("rev-parse", "--short=12", "HEAD", at=ROOT)
    if not head:
        return "uncommitted"
    changed = git("status", "--porcelain", "--", *SOURCES, at=ROOT)
    return f"{head}, changed" if changed else head


def git(*arguments: str, at: Path = ROOT) -> str:
    """Return the output of a git command; empty if it fails."""
    process = subprocess.run(["git", *arguments], cwd=at, capture_output=True, text=True)
    return process.stdout.strip() if process.returncode == 0 else ""


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
