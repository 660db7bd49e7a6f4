"""One `snapbid serve` with the demo's campaigns a module, and a bystander beside each test."""

import asyncio
from collections.abc import Iterator

import pytest
from support.bystander import Bystander
from support.processes import workers_of
from support.stack import Stack, connected

from snapbid.warehouse import demo, products


@pytest.fixture(scope="module")
def key(module_database: str) -> str:
    async def issue() -> str:
        async with connected(module_database) as connection:
            return await products.issue(connection, "shop")

    return asyncio.run(issue())


@pytest.fixture(scope="module")
def server(
    module_database: str, key: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    asyncio.run(demo.seed(module_database))
    stack = Stack(
        {
            "SNAPBID_HOME": str(tmp_path_factory.mktemp("home")),
            "SNAPBID_DATABASE_URL": module_database,
            "SNAPBID_REDIS_URL": redis_url,
        }
    )
    try:
        stack.start()
        assert stack.process
        workers = workers_of(stack.process.pid)
        yield stack
        assert workers_of(stack.process.pid) == workers, f"a worker has died:\n{stack.output}"
        assert "Traceback" not in stack.output
    finally:
        stack.close()


@pytest.fixture
def bystander(server: Stack) -> Iterator[Bystander]:
    other = Bystander(server.port)
    other.start()
    other.is_served()
    yield other
    other.is_served()
    other.stop()
