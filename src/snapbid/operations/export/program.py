"""Checks that a sandboxed systemd service, running as another user, can execute a program."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HIDDEN: Final = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))
"""The directories that systemd's `ProtectHome` and `PrivateTmp` hide from the units."""

_UNUSUAL: Final = re.compile(r"[\s%$;'\"\\]")


class UnreachableError(Exception):
    """A systemd unit could not execute the program; the message says why."""


def check(program: Path) -> None:
    """Raise UnreachableError if a unit could not execute a program.

    If the program is not on this machine, only its path is checked.
    """
    if _UNUSUAL.search(str(program)) is not None:
        raise UnreachableError(f"{program} has a character that systemd would take for syntax")
    for path in _needed(program):
        hidden = next((place for place in HIDDEN if place in path.parents), None)
        if hidden is not None:
            raise UnreachableError(
                f"{path} is below {hidden}, which is hidden from the systemd units"
            )
        for part in (*reversed(path.parents), path):
            if part.exists() and not part.stat().st_mode & stat.S_IXOTH:
                raise UnreachableError(f"{part} is not accessible to the user snapbid (chmod o+rx)")


def _needed(program: Path) -> Iterator[Path]:
    """Yield the paths of a program and, for a script, its interpreter, as given and resolved."""
    yield program
    yield program.resolve()
    try:
        with program.open("rb") as script:
            first = script.readline(4096)
    except OSError:
        return
    if first.startswith(b"#!"):
        interpreter = Path(first[2:].split()[0].decode(errors="replace"))
        yield interpreter
        yield interpreter.resolve()
