"""Tests that the catalog's benchmark uses the publisher's process as the publisher does."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import loading
from snapbid.embedded import Home, Postgres

CAMPAIGNS = 20


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    with Home(tmp_path / "stores") as home:
        server = Postgres(home)
        server.start()
        yield server.dsn
        server.stop()


@pytest.mark.long
def test_a_base_is_built_and_measured(database: str, tmp_path: Path) -> None:
    asyncio.run(loading.fill(database, CAMPAIGNS))
    base, figures = loading.load(database, tmp_path)
    assert base.campaigns == CAMPAIGNS
    assert (tmp_path / base.name).stat().st_size == base.size
    assert set(figures) == {"load_s", "processor_s", "peak_mib", "file_mib"}
