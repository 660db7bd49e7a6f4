"""A `snapbid serve` with the demo's campaigns for each module, and a bystander for each test."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from support.bystander import Bystander
from support.stack import Stack, connected

from snapbid.embedded import demo
from snapbid.warehouse import products


@pytest.fixture(scope="module")
def key(module_database: str) -> str:
    async def issue() -> str:
        async with connected(module_database) as connection:
            return await products.issue(connection, "shop")

    return asyncio.run(issue())


@pytest.fixture(scope="module")
def server(module_database: str, key: str, module_stack: Callable[..., Stack]) -> Stack:
    asyncio.run(demo.seed(module_database))
    return module_stack()


@pytest.fixture
def bystander(server: Stack) -> Iterator[Bystander]:
    other = Bystander(server.port)
    other.start()
    other.is_served()
    yield other
    other.is_served()
    other.stop()
