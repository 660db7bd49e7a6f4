"""The memory available to this process and its children: the machine's, or a cgroup's limit."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")


def usable() -> int:
    """Return how many bytes of memory this process and its children may use."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, *_limits(_CGROUP, Path("/proc/self/cgroup")), machine)


def _limits(root: Path, membership: Path) -> Iterator[int]:
    """Yield the limits of this process' cgroup and of its ancestors."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base, name = (
            (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        )
        folder = base / path.lstrip("/")
        for each in (folder, *folder.parents):
            try:
                yield int((each / name).read_text())
            except (OSError, ValueError):  # there is no such file, or it says "max"
                continue
