"""A file that is renamed into a directory is told of."""

import asyncio
from pathlib import Path

from snapbid.server.renames import Renames

PATIENCE_S = 30.0


async def test_a_renamed_file_ends_the_wait(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    with Renames(tmp_path) as renames:
        assert renames.are_told
        waiting = asyncio.create_task(renames.wait(1000 * PATIENCE_S))
        await asyncio.sleep(0)
        (tmp_path / "made").rename(tmp_path / "catalog")
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_what_happened_before_the_wait_ends_it(tmp_path: Path) -> None:
    (tmp_path / "made").touch()
    with Renames(tmp_path) as renames:
        (tmp_path / "made").rename(tmp_path / "catalog")
        await asyncio.wait_for(renames.wait(1000 * PATIENCE_S), PATIENCE_S)


async def test_a_wait_has_an_end(tmp_path: Path) -> None:
    with Renames(tmp_path) as renames:
        await asyncio.wait_for(renames.wait(0.001), PATIENCE_S)


async def test_where_the_system_does_not_tell(tmp_path: Path) -> None:
    """A user has only so many of these; here it is the directory that cannot be watched."""
    with Renames(tmp_path / "absent") as renames:
        assert not renames.are_told
        await asyncio.wait_for(renames.wait(0.001), PATIENCE_S)
