"""A settable clock for the processes of a machine; see clock.c."""

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

from support.preload import compiled

SOURCE: Final = Path(__file__).with_name("clock.c")
_OFFSET: Final = Struct("<q")


class Clock:
    """The time of day for programs started with `environ`, in seconds ahead of ours."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(_OFFSET.pack(0))
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._offset = mmap.mmap(handle, _OFFSET.size)
        os.close(handle)
        library = compiled(SOURCE)
        self.can_be_set = library is not None
        self.environ = (
            {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(file)} if self.can_be_set else {}
        )

    def set(self, seconds: float) -> None:
        self._offset[:] = _OFFSET.pack(round(seconds * 10**9))

    def close(self) -> None:
        self._offset.close()
