"""The catalog's benchmark asks the publisher's process as the publisher does."""

import asyncio
from pathlib import Path

from bench import catalog_run

CAMPAIGNS = 20


def test_a_base_is_built_and_measured(database: str, tmp_path: Path) -> None:
    asyncio.run(catalog_run.fill(database, CAMPAIGNS))
    base, figures = catalog_run.load(database, tmp_path)
    assert base.campaigns == CAMPAIGNS
    assert (tmp_path / base.name).stat().st_size == base.size
    assert set(figures) == {"load_s", "processor_s", "peak_mib", "file_mib"}
