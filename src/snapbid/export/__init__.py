"""Files for operators: dashboard, alert rules, systemd units, container file.

They are package data; `read` fills in what depends on the installation.
"""

import sys
from importlib import resources
from pathlib import Path
from typing import Final

FILES: Final = {
    "grafana": ("snapbid-dashboard.json",),
    "alerts": ("alerts.yml",),
    "systemd": ("snapbid-serve.service", "snapbid-drain.service", "snapbid.env"),
    "container": ("Containerfile",),
}
PRIVATE: Final = frozenset({"snapbid.env"})
"""Files that will hold secrets."""


def read(name: str) -> str:
    """The content of one of `FILES`."""
    text = _text(name)
    if name.endswith(".service"):
        text = text.replace("@HARDENING@", _text("hardening.conf").rstrip())
        text = text.replace("@SNAPBID@", str(Path(sys.executable).with_name("snapbid")))
    return text


def _text(name: str) -> str:
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")
