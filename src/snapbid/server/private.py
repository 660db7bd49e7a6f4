"""Privacy of a serving process: its files, and its memory when it crashes.

Limits and the umask are inherited by all that it starts: workers, the drain, the embedded stores.
"""

import os
import resource
from typing import Final

OWNER_ONLY: Final = 0o077
# One byte is too little for a core file. Where cores are piped to a program, the kernel ignores a
# limit of 0 and takes exactly 1 as a request for none (fs/coredump.c).
NO_CORE: Final = 1


def keep_private() -> None:
    """Close new files to other users, and prevent core dumps, which would hold the secret."""
    os.umask(OWNER_ONLY)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = NO_CORE if hard == resource.RLIM_INFINITY else min(hard, NO_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
