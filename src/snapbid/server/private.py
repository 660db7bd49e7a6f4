"""Protect the files of a process, and its memory in case it crashes.

Child processes (workers, drain, embedded stores) inherit the limits and the umask.
"""

import os
import resource
from typing import Final

OWNER_ONLY: Final = 0o077
# One byte is too small for a core file. Where cores are piped to a program, the kernel ignores a
# limit of 0 and takes exactly 1 to mean no dump (fs/coredump.c).
NO_CORE: Final = 1


def keep_private() -> None:
    """Make new files private and disable core dumps, which would contain the signing secret."""
    os.umask(OWNER_ONLY)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = NO_CORE if hard == resource.RLIM_INFINITY else min(hard, NO_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
