"""Files for operators: dashboard, alert rules, systemd units, container and proxy files, examples.

They are package data; `read` fills in paths and links of this installation.
"""

import sys
from importlib import resources
from pathlib import Path
from typing import Final

from snapbid.operations.export import examples
from snapbid.operations.export.grafana import dashboard
from snapbid.operations.export.program import check

ALERTS: Final = "alerts.yml"
DASHBOARD: Final = "snapbid-dashboard.json"
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
    "examples": examples.NAMES,
}
PRIVATE: Final = frozenset({"snapbid.env", "snapbid-serve.env"})
"""Files meant to hold secrets."""


def read(name: str, *, program: Path | None = None, runbook: str | None = None) -> str:
    """Return the content of one of `FILES`.

    Systemd units start `program`, by default the `snapbid` of this environment. Alerts link to
    `runbook`, by default the page installed here. Raises UnreachableError if units could not start
    `program`.
    """
    if name in examples.NAMES:
        return examples.read_example(name)
    if name == DASHBOARD:
        return dashboard()
    text = _text(name)
    if name.endswith(".service"):
        text = text.replace("@HARDENING@", _text("hardening.conf").rstrip())
        named = (program or Path(sys.executable).with_name("snapbid")).absolute()
        check(named)
        text = text.replace("@SNAPBID@", str(named))
    if name == ALERTS:
        text = text.replace("@RUNBOOK@", runbook or _runbook())
    return text


def _runbook() -> str:
    with resources.as_file(resources.files("snapbid.server") / "RUNBOOK.md") as page:
        return page.as_uri()


def _text(name: str) -> str:
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")
