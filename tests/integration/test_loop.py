"""From a bid to its click to a conversion and a self-exclusion, as the README has it."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from support import sending
from support.commands import shell
from support.processes import eventually
from support.stack import PERMISSIONS, Stack, draining

from snapbid.embedded import Redis, demo

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LOOP, EXCLUSION = (
    next(block for block in BLOCKS if part in block) for part in ("{{click_id}}", "self_exclusion")
)
# The examples sleep until the campaign bids, until the events count (which is awaited below), and
# until the campaign does not bid for a player who has excluded himself.
SLEEP = r"""
awaited=(200 200 204)
probe() { curl -s $SNAPBID_BASE_URL/api/v1/openrtb2/acme/bid -H 'Content-Type: application/json' \
  -d '{"id":"probe","imp":[{"id":"1","banner":{"w":300,"h":250},"bidfloor":50}],
       "site":{"domain":"loop.example"},"user":{"id":"u-1"}}' -o /dev/null -w '%{http_code}'; }
sleep() {
  until [ "$(probe)" = ${awaited[0]} ]; do command sleep 0.1; done
  awaited=("${awaited[@]:1}")
}
"""
COUNTED = "select event, conversions, value_micros from conversion_daily order by event"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@pytest.mark.parametrize("user", ["", "app:secret@"], ids=["default user", "permissions"])
def test_the_examples_of_the_readme(
    user: str, own_redis: Redis, database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    with contextlib.closing(redis.Redis.from_url(own_redis.url)) as client:
        client.execute_command("ACL SETUSER", "app", "on", ">secret", *PERMISSIONS)  # type: ignore[no-untyped-call]
    stack = start_stack(SNAPBID_REDIS_URL=own_redis.url.replace("unix://", f"unix://{user}"))
    asyncio.run(demo.seed(database))
    key = sending.issue(database, "demo-casino", "igaming")
    sending.await_key(stack.port, key)
    environ = {**stack.environ, "SNAPBID_BASE_URL": stack.base_url, "KEY": key}
    with draining(stack):
        output = shell(SLEEP + LOOP + EXCLUSION, environ, tmp_path)
        assert re.findall(r"a bid request: (\d+)", output) == ["200", "204"]
        assert re.search(r"^ +REFUSES +product", output, re.MULTILINE)
        assert "user with hash" in output
        for part in ('"campaign": "loop"', '"descriptor": "acme"', '"person": true', '"count":2'):
            assert part in output
        eventually(lambda: len(sending.rows(database, COUNTED)) == 3, "the events are counted")
    assert [tuple(row.values()) for row in sending.rows(database, COUNTED)] == [
        ("account_blocked", 1, 0),
        ("deposit", 1, 25_000_000),
        ("register", 1, 0),
    ]
    (row,) = sending.rows(database, "select * from campaign_performance where campaign = 'loop'")
    assert (row["registrations"], row["first_deposits"]) == (1, 1)
