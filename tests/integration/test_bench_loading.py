"""The catalog's benchmark asks the publisher's process as the publisher does."""

import asyncio
from pathlib import Path

from bench import loading

CAMPAIGNS = 20


def test_a_base_is_built_and_measured(database: str, tmp_path: Path) -> None:
    asyncio.run(loading.fill(database, CAMPAIGNS))
    base, figures = loading.load(database, tmp_path)
    assert base.campaigns == CAMPAIGNS
    assert (tmp_path / base.name).stat().st_size == base.size
    assert set(figures) == {"load_s", "processor_s", "peak_mib", "file_mib"}
