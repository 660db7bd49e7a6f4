"""Atomic and durable writes of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which is renamed to `path` at the end, or removed on an error.

    A path that is not a regular file, such as /dev/stdout, is written in place. Raises OSError,
    naming `path`.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield path
        return
    beside = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        yield beside
        beside.replace(target)
    except OSError as error:
        if error.filename == str(beside):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):
            beside.unlink()


def sync(path: Path) -> None:
    """Sync a file's content, or a directory's entries, to disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
