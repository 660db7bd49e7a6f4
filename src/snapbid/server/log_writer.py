"""The auction log's writer process, which runs beside the workers."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from snapbid.base.child import ChildProcess

STOP_S: Final = 60.0  # to convert the remaining rows


def problem_of(directory: Path) -> str | None:
    """Return why a directory cannot hold the auction log; None if it can."""
    if find_spec("duckdb") is None:
        return "needs duckdb: pip install 'snapbid[parquet]'"
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return None if os.access(directory, os.W_OK | os.X_OK) else f"{directory}: not writable"


def writer_of(directory: Path, rotate_s: int) -> ChildProcess:
    """Return the process that writes the auction log in a directory, not yet started.

    `rotate_s`: how long rows wait before they are converted to Parquet.
    """
    return ChildProcess(
        "auction log writer", "snapbid.auctionlog", str(directory), str(rotate_s), stop_s=STOP_S
    )
