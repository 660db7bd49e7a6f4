"""rtblint (crates.io): judges a bid response together with its request, by OpenRTB 2.6.

`make .venv/.rtblint` builds it where there is `cargo`; without it, what it judges is skipped.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = Path(sys.prefix, "cargo", "bin", "rtblint")
COMMAND: Final = ("validate", "--type", "response", "--format", "json")


def issues(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    """Judge answers to requests: objects with `id`, `severity`, `message` and `path`."""
    if not PROGRAM.exists():
        pytest.skip("rtblint is not installed (cargo): make .venv/.rtblint")
    with tempfile.TemporaryDirectory(prefix="snapbid-rtblint-") as folder:
        return [issue for pair in pairs for issue in _issues(Path(folder), *pair)]


def _issues(folder: Path, request: Any, answer: Any) -> list[Any]:
    asked, answered = folder / "request.json", folder / "response.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    answered.write_text(json.dumps(answer), encoding="utf-8")
    command = [str(PROGRAM), *COMMAND, "--request", str(asked), str(answered)]
    judged = subprocess.run(command, capture_output=True, text=True)
    assert judged.returncode in (0, 1), judged.stderr
    found: list[Any] = json.loads(judged.stdout)["issues"]
    return found
