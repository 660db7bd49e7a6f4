"""Script calls that share round trips: each gets its own answer, none is sent twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import redis as sync_redis
from redis.exceptions import ConnectionError, ResponseError
from support.remembered import until

from snapbid.redisclient import connection, pipelined
from snapbid.redisclient.pipelined import MOST, Call, PipelinedRedis, script

COUNT = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
FAIL = "return redis.call('INCR', 'text')"


@pytest.fixture
def client(fresh_redis: str) -> sync_redis.Redis:
    return sync_redis.Redis.from_url(fresh_redis)


@pytest.fixture
async def shared(fresh_redis: str) -> AsyncIterator[PipelinedRedis]:
    shared = pipelined.connect(fresh_redis)
    assert isinstance(shared, PipelinedRedis)
    await until(lambda: shared.calls.connected)
    yield shared
    await shared.aclose()


@pytest.fixture
async def count(shared: PipelinedRedis) -> Call:
    """A script that is known to Redis, and adds to a number, which is 0."""
    count = script(shared, COUNT, 60.0)
    assert await count(["n"], [0]) == 0
    return count


async def test_calls_of_a_turn_share_a_round_trip(count: Call, client: sync_redis.Redis) -> None:
    before = client.info("stats")["total_reads_processed"]
    many = MOST + 3
    answers = await asyncio.gather(*(count(["n"], [1]) for _ in range(many)))
    assert answers == list(range(1, many + 1))
    assert client.info("stats")["total_reads_processed"] - before < 20  # of parts of two writes


async def test_a_call_during_a_round_trip_takes_the_next(count: Call) -> None:
    async def twice() -> list[int]:
        return [await count(["n"], [1]), await count(["n"], [1])]

    answers = await asyncio.gather(*(twice() for _ in range(20)))
    assert sorted(number for pair in answers for number in pair) == list(range(1, 41))


async def test_a_script_that_redis_has_forgotten_is_loaded_again(
    count: Call, client: sync_redis.Redis
) -> None:
    client.script_flush()
    assert sorted(await asyncio.gather(*(count(["n"], [1]) for _ in range(5)))) == [1, 2, 3, 4, 5]


async def test_an_error_is_that_of_one_call(
    shared: PipelinedRedis, client: sync_redis.Redis, count: Call
) -> None:
    client.set("text", "no number")
    fail = script(shared, FAIL, 60.0)
    with pytest.raises(ResponseError, match="not an integer"):
        await fail([], [])
    results = await asyncio.gather(
        count(["n"], [1]), fail([], []), count(["n"], [1]), return_exceptions=True
    )
    assert [results[0], type(results[1]), results[2]] == [1, ResponseError, 2]


async def test_a_call_that_was_given_up_is_not_sent(count: Call) -> None:
    left = asyncio.ensure_future(count(["n"], [100]))
    kept = asyncio.ensure_future(count(["n"], [1]))
    await asyncio.sleep(0)  # both wait; nothing is sent before the loop's next turn
    left.cancel()
    assert await kept == 1


async def test_a_lost_connection_ends_its_calls_and_is_made_again(
    shared: PipelinedRedis, client: sync_redis.Redis, count: Call
) -> None:
    client.client_pause(10_000, all=False)  # scripts, among others
    under_way = [asyncio.ensure_future(count(["n"], [1])) for _ in range(3)]
    await until(lambda: len(shared.calls._requests.sent) == 3)
    waiting = asyncio.ensure_future(count(["n"], [1]))
    client.client_unpause()
    client.client_kill_filter(skipme=True)
    ended = await asyncio.gather(*under_way, waiting, return_exceptions=True)
    assert all(isinstance(each, int | ConnectionError) for each in ended)
    before = int(client.get("n") or 0)
    assert before <= 4  # none was sent again
    assert await count(["n"], [1]) == before + 1  # by redis-py's way, if need be
    await until(lambda: shared.calls.connected)
    assert await count(["n"], [1]) == before + 2


async def test_a_round_trip_without_an_answer_gives_the_connection_up(
    shared: PipelinedRedis, client: sync_redis.Redis, count: Call
) -> None:
    shared.calls._trips.stall_s = 0.02
    client.client_pause(60_000, all=False)
    try:
        with pytest.raises(ConnectionError):  # and no TimeoutError
            async with asyncio.timeout(10):
                await count(["n"], [1])
    finally:
        shared.calls._trips.stall_s = pipelined.STALL_S
        client.client_unpause()
    await until(lambda: shared.calls.connected)


async def test_a_call_has_no_more_than_its_time(
    shared: PipelinedRedis, client: sync_redis.Redis
) -> None:
    in_time, short = (script(shared, COUNT, within_s) for within_s in (60.0, 0.03))
    assert await in_time(("n",), (1,)) == 1
    shared.calls._trips.stall_s = 60.0
    client.client_pause(60_000, all=False)  # scripts, among others
    try:
        first = asyncio.ensure_future(in_time(("n",), (1,)))
        await until(lambda: bool(shared.calls._requests.sent))
        with pytest.raises(TimeoutError):
            await short(("n",), (10,))  # waits for the next round trip, and is left out of it
    finally:
        client.client_unpause()
    assert await first == 2
    client.script_flush()
    assert await in_time(("n",), (1,)) == 3


async def test_a_client_without_shared_round_trips_has_calls_in_time(
    fresh_redis: str, client: sync_redis.Redis
) -> None:
    plain = connection.connect(fresh_redis)
    count = script(plain, COUNT, 0.03)
    try:
        while True:
            with contextlib.suppress(TimeoutError):  # a slow machine
                assert await count(("n",), (1,)) == 1
                break
            client.delete("n")
        client.client_pause(60_000, all=False)
        with pytest.raises(TimeoutError):
            await count(("n",), (1,))
    finally:
        client.client_unpause()
        await plain.aclose()


@pytest.mark.parametrize(
    "url", ["redis+cluster://127.0.0.1:7000", "redis+sentinel://127.0.0.1:26379/main"]
)
async def test_a_cluster_is_asked_node_by_node(url: str) -> None:
    client = pipelined.connect(url)
    assert not isinstance(client, PipelinedRedis)
    await client.aclose()
