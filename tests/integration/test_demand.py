"""Demand rules over a running system: made by the drain, served with an ETag."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator

import pytest
from support import books
from support.commands import succeed
from support.http import Reply
from support.ops import CAMPAIGN, all_limited, ask
from support.processes import eventually
from support.report import report_path
from support.sending import rows
from support.stack import JWT_SECRET, Stack, draining, execute

from snapbid.partners.demand.endpoint import SUFFIX
from snapbid.report import tokens

RENEWED_S = 60


@pytest.fixture(scope="module")
def stack(module_database: str, module_stack: Callable[..., Stack]) -> Iterator[Stack]:
    asyncio.run(books.set_up(module_database))
    served = module_stack()
    with draining(served):
        yield served


def get(stack: Stack, ssp: str, **headers: str) -> Reply:
    token = tokens.issue(ssp, JWT_SECRET.encode(), "snapbid")
    headers.setdefault("authorization", f"Bearer {token}")
    return ask(stack, "GET", report_path(ssp, SUFFIX), b"", ops=False, **headers)


def sizes(stack: Stack, ssp: str) -> set[str]:
    status, _, body = get(stack, ssp)
    if status == 503:
        return set()
    assert status == 200, body
    return {size for entry in json.loads(body)["accept"] for size in entry.get("sizes", ())}


def test_rules_follow_campaign_changes(stack: Stack) -> None:
    """Campaigns for one SSP are no other's business, and a change is told within 60 s."""
    plain = {f"{w}x{h}" for w, h in books.CAMPAIGNS}
    eventually(lambda: sizes(stack, "acme") == plain, "the rules of the campaigns")
    headers = get(stack, "acme")[1]
    tag = headers["etag"]
    assert headers["cache-control"] == "private, max-age=60"
    assert get(stack, "acme", **{"if_none_match": tag})[0] == 304
    assert get(stack, "acme", **{"if_none_match": f'"other", W/{tag}'})[0] == 304
    assert get(stack, "acme", **{"if_none_match": '"other"'})[0] == 200
    assert get(stack, "acme", **{"if_none_match": "*"})[0] == 304
    creative = {"id": "k", "media": "banner", "w": 11, "h": 22, "adm": "<p></p>"}
    only = {"targeting": {"ssp": {"include": ["acme-eu"]}}}
    extra = {**CAMPAIGN, "id": "extra", "creatives": [creative], **only}
    environ = {"SNAPBID_DATABASE_URL": stack.environ["SNAPBID_DATABASE_URL"]}
    succeed(environ, "campaign", "import", "-", input=json.dumps(extra))
    changed = time.monotonic()
    eventually(lambda: sizes(stack, "acme") == plain | {"11x22"}, "the new campaign")
    assert time.monotonic() - changed < RENEWED_S
    assert sizes(stack, "nova") == plain
    assert get(stack, "acme", **{"if_none_match": tag})[0] == 200
    succeed(environ, "campaign", "pause", "extra")
    eventually(lambda: sizes(stack, "acme") == plain, "the pause")
    assert get(stack, "acme")[1]["etag"] == tag, "equal rules have equal tags"


def test_rules_need_authorisation(stack: Stack) -> None:
    ours = f"Bearer {tokens.issue('acme', JWT_SECRET.encode(), 'snapbid')}"
    assert get(stack, "nova", authorization=ours)[0] == 401
    assert get(stack, "acme", authorization="")[0] == 401
    answers = all_limited(lambda: repeatedly(stack, "acme", 11))
    assert [status for status, _, _ in answers] == [200] * 10 + [429]


def repeatedly(stack: Stack, ssp: str, times: int) -> list[Reply]:
    """Get the rules so often with one new token."""
    ours = f"Bearer {tokens.issue(ssp, JWT_SECRET.encode(), 'snapbid')}"
    return [get(stack, ssp, authorization=ours) for _ in range(times)]


def test_prices_are_not_disclosed(stack: Stack) -> None:
    """They are rounded up to a step: 2.345679 USD is given as 2.50."""
    eventually(lambda: get(stack, "nova")[0] == 200, "the rules")
    floors = {entry["maxFloor"] for entry in json.loads(get(stack, "nova")[2])["accept"]}
    assert floors == {0.000001, 0.4, 1.25, 2.5, 50.0}


async def test_a_family_that_is_gone_has_no_rules(stack: Stack) -> None:
    database = stack.environ["SNAPBID_DATABASE_URL"]
    await execute(database, "insert into ssp values ('gone', 'gone')")
    await asyncio.to_thread(eventually, lambda: get(stack, "gone")[0] == 200, "its rules")
    await execute(database, "delete from ssp where descriptor = 'gone'")
    await asyncio.to_thread(eventually, lambda: get(stack, "gone")[0] == 401, "its end")
    left = "select from demand_signal where ssp = 'gone'"
    await asyncio.to_thread(eventually, lambda: not rows(database, left), "the last build")


async def test_rules_that_are_no_longer_renewed_are_not_served(stack: Stack) -> None:
    """A filter that outlives the drain drops the traffic of campaigns that came since."""
    database = stack.environ["SNAPBID_DATABASE_URL"]
    eventually(lambda: get(stack, "acme")[0] == 200, "the rules")
    tag = get(stack, "acme")[1]["etag"]
    await execute(database, "update demand_signal set made_at = now() - interval '14 minutes'")
    assert get(stack, "acme", **{"if_none_match": tag})[0] == 304
    await execute(database, "update demand_signal set made_at = now() - interval '16 minutes'")
    status, headers, _ = get(stack, "acme", **{"if_none_match": tag})
    assert (status, headers["retry-after"]) == (503, "5")
