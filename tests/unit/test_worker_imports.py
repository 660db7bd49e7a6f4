"""What a worker process never needs takes none of its memory."""

import subprocess
import sys
from typing import Final

import pytest

IMPORTED: Final = {
    # multiprocessing imports the main module of a script in each process that it starts
    "by spawning": "snapbid.__main__",
    "to serve": "snapbid.server.process, snapbid.server.app, snapbid.server.worker",
}
NEVER: Final = {
    "click",
    "rich",
    "snapbid.cli",
    "snapbid.catalog.publisher",
    "snapbid.operations.dashboard",
    "snapbid.drain",
}


@pytest.mark.parametrize("modules", IMPORTED.values(), ids=IMPORTED)
def test_workers_import_only_what_they_need(modules: str) -> None:
    code = f"import sys, {modules}; print(*{NEVER!r} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
