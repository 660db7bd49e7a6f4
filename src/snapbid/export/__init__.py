"""Files for operators: dashboard, alert rules, units, container file, bill of materials, examples.

They are package data, in which `read` fills in what depends on the installation; the bill of
materials is made.
"""

import sys
from importlib import resources
from pathlib import Path
from typing import Final

from snapbid.export import examples

BILL: Final = "snapbid.cdx.json"
FILES: Final = {
    "grafana": ("snapbid-dashboard.json",),
    "alerts": ("alerts.yml",),
    "systemd": (
        "snapbid-serve.service",
        "snapbid-drain.service",
        "snapbid.env",
        "snapbid-serve.env",
    ),
    "container": ("Containerfile",),
    "compose": ("compose.yml",),
    "sbom": (BILL,),
    "examples": examples.NAMES,
}
PRIVATE: Final = frozenset({"snapbid.env", "snapbid-serve.env"})
"""Files that will hold secrets."""


class MissingExtraError(Exception):
    """What is exported needs a library that is not installed; the message says which."""


def read(name: str) -> str:
    """The content of one of `FILES`. Raises MissingExtraError."""
    if name == BILL:
        return _bill()
    if name in examples.NAMES:
        return examples.read_example(name)
    text = _text(name)
    if name.endswith(".service"):
        text = text.replace("@HARDENING@", _text("hardening.conf").rstrip())
        text = text.replace("@SNAPBID@", str(Path(sys.executable).with_name("snapbid")))
    return text


def _bill() -> str:
    try:
        from snapbid.export import sbom
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the bill of materials needs the package {error.name}: pip install 'snapbid[sbom]', "
            "or requirements/sbom.txt of the source directory"
        ) from error
    return sbom.describe()


def _text(name: str) -> str:
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")
