"""Texts with a meaning in SQL, logs or terminals, through everything that stores or shows them.

Stored text comes back as it was sent; logged or printed text cannot forge a line.
"""

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from support.bystander import BODY, GOOD, JSON, PATH
from support.commands import invoke
from support.event_bench import Bench
from support.sending import event
from support.stack import Stack, connected, run
from support.wire import Wire

from snapbid.warehouse import campaigns

TEXTS = [
    "'; drop table events; --",
    "$1 %s {0} ${x} \\' \\",
    "a\nERROR forged line\r\nINFO another",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "\x9b31m\x85next\u2028line\u202egnp.exe",
    "*1\r\n$8\r\nFLUSHALL\r\n",
    "<script>alert(1)</script>",
    "\t\x7f\ufeff\u200b",
    "..\\..//../%00%0a",
]
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")


def shows_plainly(shown: str) -> None:
    match = STEERING.search(shown)
    assert not match, shown[max(0, match.start() - 200) : match.end() + 20]
    assert "\nERROR forged" not in shown
    assert "\nINFO another" not in shown


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
async def test_events_come_back_as_they_were_sent(
    database: str, fresh_redis: str, tmp_path: Path, text: str
) -> None:
    async with Bench.open(database, fresh_redis, tmp_path) as bench:
        sent = event(
            "deposit", text, click=text, transaction_id=text, amount=1, currency="EUR",
            own={text: [text]}, user_agent=text,
        )  # fmt: skip
        await bench.accept(sent)
        assert await bench.round() == 1
        (row,) = await bench.connection.fetch("select * from events")
        assert (row["client_user_id"], row["click_id"]) == (text, text)
        context = json.loads(row["context"])
        assert (context["transaction_id"], context["user_agent"]) == (text, text)
        assert context["own"] == {text: [text]}


async def test_campaigns_round_trip(database: str) -> None:
    documents = {
        text: {
            "id": text,
            "advertiser": "brand.example",
            "name": text,
            "seat": text,
            "cpm": 1,
            "creatives": [{"id": text, "media": "banner", "adm": text, "w": 1, "h": 1}],
        }
        for text in TEXTS
    }
    async with connected(database) as connection:
        pairs = [(id, json.dumps(document)) for id, document in documents.items()]
        await campaigns.replace_many(connection, pairs)
        stored = {each.id: each async for each in campaigns.fetch_all(connection)}
        imported = {id: json.loads(campaign.document) for id, campaign in stored.items()}
        written = {id: {**document, "status": "active"} for id, document in documents.items()}
        assert imported == written
        for id in TEXTS:
            assert await campaigns.set_status(connection, id, "paused")
    environ = {"SNAPBID_DATABASE_URL": database}
    for command in (("list",), ("pause", TEXTS[3]), ("resume", TEXTS[2]), ("pause", "\x1b[2J\n")):
        done = run(environ, "campaign", *command)
        shows_plainly(done.stdout + done.stderr)


def test_operands_are_shown_plainly(database: str, tmp_path: Path) -> None:
    environ = {"SNAPBID_DATABASE_URL": database, "SNAPBID_HOME": str(tmp_path / "home")}
    lines = "".join(json.dumps({"id": text, text: text, "cpm": text}) + "\n" for text in TEXTS)
    (tmp_path / "campaigns.jsonl").write_text(lines)
    (tmp_path / "rates.json").write_text(json.dumps([{"currency": text} for text in TEXTS]))
    for text in TEXTS:
        for command in (
            ("ssp", "add", "--", text),
            ("ssp", "add", "x", "--canonical", text),
            ("token", "issue", "--", text),
            ("key", "issue", "--", text),
            ("campaign", "pause", "--", text),
        ):
            done = invoke(environ, *command)
            assert done.returncode in (1, 2), done
            shows_plainly(done.stdout + done.stderr)
    for kind, file in (("campaign", "campaigns.jsonl"), ("rates", "rates.json")):
        done = run(environ, kind, "import", file, cwd=tmp_path)
        assert done.returncode in (1, 2), done
        shows_plainly(done.stdout + done.stderr)


async def test_bids_and_notices_of_strange_auctions(server: Stack) -> None:
    with Wire(server.port) as wire:
        for text in TEXTS:
            request = {**GOOD, "id": text, "imp": [{"id": text, "banner": {"w": 300, "h": 250}}]}
            request |= {"site": {"domain": text, "page": text, "id": text}, "user": {"id": text}}
            request["device"] = {"ua": text, "geo": {"country": "USA"}}
            reply = wire.ask("POST", PATH, JSON, json.dumps(request).encode())
            assert reply.status == 200
            (bid,) = reply.json()["seatbid"][0]["bid"]
            assert (reply.json()["id"], bid["impid"]) == (text, text)
            url = bid["nurl"].removeprefix(server.base_url)
            assert url == f"/rtb/win?id={quote(text, safe='')}&impId={quote(text, safe='')}"
            for _ in range(2):
                assert wire.ask("GET", url).status == 200
            stray = PATH.replace("acme", quote(text, safe=""))
            assert wire.ask("POST", stray, JSON, BODY).status == 404
            assert wire.ask("GET", "/" + quote(text), {"user-agent": quote(text)}).status == 404
    shows_plainly(server.output)
    assert "alert(1)" not in server.output
    pages = [server.get(path, ops=True) for path in ("/metrics", "/ops", "/healthz")]
    for _, page in pages:
        shows_plainly(page.decode())
        assert b"<script>alert" not in page
