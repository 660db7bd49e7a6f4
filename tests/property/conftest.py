"""Nothing here is about a Redis that is unavailable: a busy machine may take its time."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("snapbid.ledger.bids.shard.NOTICE_S", 20.0)
        patch.setattr("snapbid.ledger.bids.shard.STALL_S", 20.0)
        yield
