"""A settable time of day for the programs of a machine; see program_clock.c."""

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

from support.preload import compiled

SOURCE: Final = Path(__file__).with_suffix(".c")
AHEAD: Final = "CLOCK_OFFSET"
STOPPED: Final = "CLOCK_TIME"
_NANOSECONDS: Final = Struct("<q")


class ProgramClock:
    """The time of day for programs started with `environ`: how much it is AHEAD of ours, or the
    time since 1970 at which it is STOPPED.
    """

    def __init__(self, file: Path, kind: str = AHEAD) -> None:
        file.write_bytes(_NANOSECONDS.pack(0))
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._time = mmap.mmap(handle, _NANOSECONDS.size)
        os.close(handle)
        library = compiled(SOURCE)
        self.can_be_set = library is not None
        self.environ = {"LD_PRELOAD": str(library), kind: str(file)} if self.can_be_set else {}

    def set(self, seconds: float) -> None:
        self.set_ns(round(seconds * 10**9))

    def set_ns(self, nanoseconds: int) -> None:
        self._time[:] = _NANOSECONDS.pack(nanoseconds)

    def close(self) -> None:
        self._time.close()
