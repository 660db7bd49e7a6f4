"""`python -m snapbid.auctionlog DIRECTORY SECONDS`: the writer, as a process of `serve`.

It ends, with all rows converted, when its standard input does, so it never outlives the server.
"""

import logging
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from snapbid.auctionlog.writer import LogWriter
from snapbid.base.errors import log_to_stderr

LOOK_S: Final = 1.0
NICE: Final = 10

logger = logging.getLogger("snapbid")


def main(directory: Path, rotate_s: float) -> None:
    """Convert until the standard input ends."""
    log_to_stderr()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the server, which tells us when to end
    with suppress(OSError):
        os.nice(NICE)
    writer = LogWriter(directory, rotate_s)
    told: str | None = None
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
            if why != told:
                logger.error("the auction log cannot be converted: %s", why)
            told = why
        else:
            if told is not None:
                logger.info("the auction log is converted again")
            told = None


main(Path(sys.argv[1]), float(sys.argv[2]))
