"""What a run needs before it begins, and its end if it is interrupted."""

import os
import re
import signal
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any, Final

from bench.about import ROOT

MOST_LOAD: Final = 1.0  # before figures that are to be committed, or compared
INTERRUPTED: Final = 130  # the exit status
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def check() -> None:
    """Exit with the remedy if a package is missing, or an extension is older than its sources."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for need in project["optional-dependencies"]["bench"]:
        name = re.split(r"[^\w.-]", need)[0]
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            sys.exit(f"{name} is not installed: run make .venv/.bench")
    if stale := stale_sources():
        sys.exit(f"{stale[0]} is newer than the extension compiled from it: run make build")


def stale_sources() -> list[str]:
    """Return the files of native/ that are newer than what is compiled from them.

    That is the extension of the same name or, of a shared file, at least one of all extensions.
    """
    native, package = ROOT / "native", ROOT / "src"
    built = {
        path.relative_to(package).parent / path.name.partition(".")[0]: path.stat().st_mtime
        for path in package.rglob("*.so")
    }
    newest = max(built.values(), default=0.0)
    return [
        str(path.relative_to(ROOT))
        for path in sorted(native.rglob("*.*"))
        if path.stat().st_mtime > built.get(path.relative_to(native).with_suffix(""), newest)
    ]


def why_not_keep() -> str | None:
    """Return why figures that are measured now should not be committed, if so."""
    load = os.getloadavg()[0]
    if load <= MOST_LOAD:
        return None
    return (
        f"--keep: the load is {load:.1f}, so other programs use the cores and would be"
        f" measured, too; wait until it is below {MOST_LOAD:g}"
    )


@contextmanager
def orderly_end() -> Iterator[None]:
    """On Ctrl-C, SIGTERM or SIGHUP leave the block, which stops servers and removes folders.

    Then print a line and exit with INTERRUPTED.
    """
    catch_signals()
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; nothing was kept", file=sys.stderr)
        sys.exit(INTERRUPTED)


def catch_signals() -> None:
    """Let the first of SIGNALS raise KeyboardInterrupt, and the others not disturb what it ends."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, _interrupt)


def _interrupt(*_: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)  # unlike SIG_IGN, not for the processes we start
    raise KeyboardInterrupt
