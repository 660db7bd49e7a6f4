"""What a serving process keeps to itself: its files, and its memory when it crashes.

Limits and the umask pass to all that it starts: workers, the drain, the embedded stores.
"""

import os
import resource
from typing import Final

OWNER_ONLY: Final = 0o077
# One byte: too little for a core file, and where cores are piped to a program the kernel takes
# exactly this as a wish for none (a limit of 0 it does not look at there; fs/coredump.c).
NO_CORE: Final = 1


def keep_private() -> None:
    """Makes new files the owner's alone, and no core dumps, which would hold the secret."""
    os.umask(OWNER_ONLY)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = NO_CORE if hard == resource.RLIM_INFINITY else min(hard, NO_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
