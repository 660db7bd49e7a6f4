"""Splits what does not fit into memory by auction, into parts on disk."""

import marshal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

PARTS: Final = 32
HELD: Final = 2_000  # tuples of a part, until they are written


class Parts:
    """Tuples, each with an auction; all of an auction are in one part. Close it when done."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory(prefix="snapbid-reconcile-")
        self._held: list[list[tuple[Any, ...]]] = [[] for _ in range(PARTS)]
        self._files: list[IO[bytes]] = [
            open(Path(self._directory.name, str(part)), "w+b")  # noqa: SIM115
            for part in range(PARTS)
        ]

    def add(self, auction: str, values: tuple[Any, ...]) -> None:
        part = hash(auction) % PARTS
        held = self._held[part]
        held.append(values)
        if len(held) >= HELD:
            self._write(part)

    def _write(self, part: int) -> None:
        marshal.dump(self._held[part], self._files[part])
        self._held[part] = []

    def read(self, part: int) -> Iterator[tuple[Any, ...]]:
        """The tuples of a part, in the order in which they were added."""
        self._write(part)
        file = self._files[part]
        file.seek(0)
        while True:
            try:
                yield from marshal.load(file)
            except EOFError:
                return

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._directory.cleanup()
