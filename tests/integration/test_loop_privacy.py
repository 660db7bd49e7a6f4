"""What the loop keeps of persons (contract 3 and 12): no id, and nothing where a signal forbids it.

All of both stores and all files are searched, for the ids and for their keyed hashes.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import redis
from support import logged, sending
from support.commands import succeed
from support.ops import ask
from support.processes import eventually
from support.stack import Stack, connected

from snapbid.campaigns.persons import PersonKey

CASES = Path(__file__).parents[1] / "conformance" / "cases" / "privacy"
CAMPAIGN = {
    "id": "c", "advertiser": "shop.example", "cpm": 2, "product": "casino",
    "targeting": {"audience": {"exclude": ["players"]}},
    "creatives": [{"id": "k", "media": "banner", "w": 300, "h": 250,
                   "adm": "<a href='https://shop.example/?c={{click_id}}'>go</a>"}],
}  # fmt: skip
PLAYERS = {"id": "players", "product": "casino", "event": "deposit", "within_days": 30}
KINDS = ("ifa", "buyeruid", "user", "eid")


def denials() -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests' parts that deny user data, one of each kind of signal and of each section."""
    yield "gpc", {"regs": {"gpc": "1"}}
    yield "gpc in ext", {"regs": {"ext": {"gpc": "1"}}}
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text()):
            if case["may_use"] or "gvl_id" in case or "\\ud" in json.dumps(case):
                continue  # an unpaired surrogate is no JSON
            names = ("coppa", "gdpr", "us_privacy", "gpp", "gpp_sid")
            regs = {name: case[name] for name in names if case.get(name) is not None}
            user = {"consent": case["consent"]} if case.get("consent") else {}
            yield f"{path.stem}: {case['name']}", {"regs": regs, "user": user}


class Person(dict[str, str]):
    """Ids of one person in a bid request, by kind."""

    def __init__(self) -> None:
        super().__init__((kind, f"{kind}-{uuid.uuid4()}") for kind in KINDS)
        self["ifa"] = str(uuid.uuid4())

    def request(self, auction: str, more: dict[str, Any]) -> bytes:
        eids = [{"source": "id.example", "uids": [{"id": self["eid"]}]}]
        user = {"id": self["user"], "buyeruid": self["buyeruid"], "eids": eids}
        whole = {
            "id": auction, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}], "tmax": 60_000,
            "app": {"bundle": "a"}, **more, "user": user | more.get("user", {}),
            "device": {"ifa": self["ifa"]} | more.get("device", {}),
        }  # fmt: skip
        return json.dumps(whole).encode()

    def traces(self, key: PersonKey) -> dict[str, list[bytes]]:
        """What would show the person: each id, and its hash as numbers and bytes."""
        scopes = {"user": "acme", "eid": "id.example"}
        found = {}
        for kind, id in self.items():
            member = key.member(kind, id, scopes.get(kind, ""))
            found[kind] = [id.encode(), str(member).encode()]
            found[kind] += [member.to_bytes(8, order, signed=True) for order in ("big", "little")]
        return found


def bid(served: Stack, body: bytes) -> str | None:
    """The click id of the bid that answers a request; None without one."""
    path = "/api/v1/openrtb2/acme/bid"
    status, _, answer = ask(served, "POST", path, body, content_type="application/json")
    if status != 200:
        return None
    adm: str = json.loads(answer)["seatbid"][0]["bid"][0]["adm"]
    return adm.partition("?c=")[2].partition("'")[0]


async def tables(dsn: str) -> bytes:
    """All rows of all tables, as text and as PostgreSQL sends them in binary."""
    buffer = BytesIO()
    async with connected(dsn) as connection:
        names = await connection.fetch(
            "select c.oid::regclass::text as name from pg_class c where relkind in ('r', 'p')"
            " and relnamespace = 'public'::regnamespace and not relispartition"
        )
        for row in names:
            for form in ("text", "binary"):
                query = f"select * from {row['name']}"
                await connection.copy_from_query(query, output=buffer, format=form)
    return buffer.getvalue()


def ledger(url: str) -> bytes:
    """All keys and values of Redis."""
    found: list[Any] = []
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter():
            found.append(key)
            match client.type(key):
                case b"string":
                    found.append(client.get(key))
                case b"hash":
                    found.append(client.hgetall(key))
                case b"set":
                    found.append(client.smembers(key))
                case b"zset":
                    found.append(client.zrange(key, 0, -1, withscores=True))
                case b"list":
                    found.append(client.lrange(key, 0, -1))
                case b"stream":
                    found.append(client.xrange(key))
                case other:
                    raise AssertionError(other)
    return b"\n".join(_leaves(found))


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, list | tuple | set):
        for each in value:
            yield from _leaves(each)
    else:
        yield value if isinstance(value, bytes) else str(value).encode()


def files(folder: Path) -> bytes:
    """All files below a folder; of the auction log what its rows say, too."""
    rows = [repr(sorted(row.items())).encode() for row in logged.read(folder / "auctions")]
    assert rows
    return b"\n".join([*(path.read_bytes() for path in folder.rglob("*") if path.is_file()), *rows])


@pytest.mark.long
def test_no_id_is_kept_and_nothing_where_a_signal_forbids_it(
    database: str, fresh_redis: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    environ = {"SNAPBID_DATABASE_URL": database, "SNAPBID_REDIS_URL": fresh_redis}
    succeed(environ, "ssp", "add", "acme")
    succeed(environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))
    succeed(environ, "audience", "add", "-", input=json.dumps(PLAYERS))
    key = sending.issue(database, "casino", "igaming", rate=1_000_000)
    log = {"SNAPBID_AUCTION_LOG": str(tmp_path / "auctions"), "SNAPBID_AUCTION_LOG_S": "1"}
    served = start_stack(**log)
    drain = Stack(served.environ, "drain")
    drain.launch()
    try:
        sending.await_key(served.port, key)
        eventually(
            lambda: bid(served, Person().request("probe", {"test": 1})) is not None, "it bids"
        )
        persons: dict[str, Person] = {}
        sent = []
        permitted = [("permitted", {}), ("lmt", {"device": {"lmt": 1}})]  # which limits caps alone
        for number, (name, more) in enumerate([*permitted, *denials()]):
            persons[name] = Person()
            click = bid(served, persons[name].request(f"auction-{number}", more))
            assert click, name
            for kind in ("win", "bill"):
                assert ask(served, "GET", f"/rtb/{kind}?id=auction-{number}&impId=1")[0] == 200
            paid: Any = {"transaction_id": f"t{number}", "amount": 5, "currency": "USD"}
            sent.append(sending.event("deposit", f"player-{number}", click=click, **paid))
            sent[-1]["timestamp"] = time.time_ns() // 1_000_000
        assert len(persons) > 100
        for start in range(0, len(sent), 50):
            reply = sending.send(served.port, sending.BATCH, sent[start : start + 50], key)
            assert reply.status == 202
        counted = "select sum(conversions)::int as n from conversion_daily"
        eventually(lambda: sending.rows(database, counted)[0]["n"] == len(sent), "all have counted")
        eventually(
            lambda: len(sending.rows(database, "select from audience_member")) > 0, "one is known"
        )
        everything = ledger(fresh_redis) + asyncio.run(tables(database))
    finally:
        drain.close()
        served.close()
    everything += files(tmp_path)
    (row,) = sending.rows(database, "select key from suppression_key")
    hashes = PersonKey(bytes(row["key"]))
    shown = {
        (name, kind, place)
        for name, person in persons.items()
        for kind, traces in person.traces(hashes).items()
        for place, trace in enumerate(traces)
        if trace in everything
    }
    # Of whoever may be known, one hash: it is in the click id, and so in the tables of audiences.
    assert {(name, kind) for name, kind, _ in shown} == {("permitted", "ifa"), ("lmt", "ifa")}
    assert {place for _, _, place in shown} >= {1, 2}
    assert not {place for _, _, place in shown} & {0}
