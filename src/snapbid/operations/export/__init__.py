"""Files for operators: dashboard, alert rules, systemd units, container and proxy files, examples.

They are package data; `read` fills in paths and links of this installation.
"""

import re
import stat
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from snapbid.operations.export.grafana import dashboard

ALERTS: Final = "alerts.yml"
DASHBOARD: Final = "snapbid-dashboard.json"
EXAMPLES_PAGE: Final = "README.md"
EXAMPLES: Final = (
    EXAMPLES_PAGE,
    *(
        f"{name}{suffix}"
        for name in (
            *("banner", "video", "native", "audio", "mobile", "deal"),
            *("budget", "caps", "radius", "audience", "dsa"),
        )
        for suffix in (".json", ".request.json")
    ),
    "prices.jsonl",
    "prices.request.json",
)
FILES: Final = {
    "grafana": (DASHBOARD,),
    "alerts": (ALERTS,),
    "systemd": (
        "snapbid-serve.service",
        "snapbid-drain.service",
        "snapbid.env",
        "snapbid-serve.env",
    ),
    "container": ("Containerfile",),
    "compose": ("compose.yml",),
    "nginx": ("nginx.conf",),
    "caddy": ("Caddyfile",),
    "examples": EXAMPLES,
}
PRIVATE: Final = frozenset({"snapbid.env", "snapbid-serve.env"})
"""Files meant to hold secrets."""

HIDDEN: Final = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))
"""The directories that systemd's `ProtectHome` and `PrivateTmp` hide from the units."""

_EXAMPLE: Final = re.compile(r"^`([\w.]+)`:\n\n```jsonl?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_UNUSUAL: Final = re.compile(r"[\s%$;'\"\\]")


class UnreachableError(Exception):
    """A systemd unit could not execute the program; the message says why."""


def read(name: str, *, program: Path | None = None, runbook: str | None = None) -> str:
    """Return the content of one of `FILES`.

    Systemd units start `program`, by default the `snapbid` of this environment. Alerts link to
    `runbook`, by default the installed copy of RUNBOOK.md. Raises UnreachableError if units could
    not start `program`.
    """
    if name in EXAMPLES:
        return _example(name)
    if name == DASHBOARD:
        return dashboard()
    text = _text(name)
    if name.endswith(".service"):
        text = text.replace("@HARDENING@", _text("hardening.conf").rstrip())
        named = (program or Path(sys.executable).with_name("snapbid")).absolute()
        check_program(named)
        text = text.replace("@SNAPBID@", str(named))
    if name == ALERTS:
        text = text.replace("@RUNBOOK@", runbook or _runbook())
    return text


def _runbook() -> str:
    with resources.as_file(resources.files("snapbid.server") / "RUNBOOK.md") as page:
        return page.as_uri()


def _text(name: str) -> str:
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")


def _example(name: str) -> str:
    """Return the content of one of the files named in `EXAMPLES`."""
    page = resources.files("snapbid.campaigns").joinpath("EXAMPLES.md").read_text(encoding="utf-8")
    return page if name == EXAMPLES_PAGE else dict(_EXAMPLE.findall(page))[name]


def check_program(program: Path) -> None:
    """Raise UnreachableError if the systemd units could not execute a program.

    The units run as the user `snapbid`, without access to the directories in `HIDDEN`. If the
    program is not on this machine, only its path is checked.
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
    """Yield a program's path and, for a script, its interpreter's path.

    Each path is yielded twice: as given, and with its symlinks resolved.
    """
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
