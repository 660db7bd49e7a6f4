"""`python -m snapbid.auctionlog DIRECTORY SECONDS`: the writer, a child process of `serve`.

When its standard input closes, it converts the remaining rows and ends, so it never outlives the
server.
"""

import logging
import select
import sys
from pathlib import Path
from typing import Final

from snapbid.auctionlog.writer import LogWriter
from snapbid.base.child import begin_child

LOOK_S: Final = 1.0

logger = logging.getLogger("snapbid.auctionlog")


def main(directory: Path, rotate_s: float) -> None:
    """Convert rows to Parquet until standard input closes."""
    begin_child()
    writer = LogWriter(directory, rotate_s)
    logged: str | None = None
    opened = ended = False
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], min(LOOK_S, rotate_s))[0])
        try:
            if not opened:
                writer.open()
                opened = True
            writer.look(everything=ended)
        except OSError as error:
            why = error.strerror or str(error)
            if why != logged:
                logger.error(
                    "failed to convert the auction log to Parquet: %(reason)s; retrying",
                    {"reason": why},
                )
            logged = why
        else:
            if logged is not None:
                logger.info("resumed converting the auction log")
            logged = None


main(Path(sys.argv[1]), float(sys.argv[2]))
