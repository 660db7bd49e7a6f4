"""Counters for a test; and tests of modules with `LOOPS` run on each of these event loops."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from snapbid.metrics import Metrics


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    module = item.getparent(pytest.Module)
    assert module is not None
    return getattr(module.obj, "LOOPS", {"asyncio": asyncio.new_event_loop})


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[Metrics]:
    with contextlib.closing(Metrics(tmp_path)) as metrics:
        yield metrics
