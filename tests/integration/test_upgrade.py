"""Upgrade and rollback as PRODUCTION.md has them, amid open bids, holds, notices and events.

Two machines share one Redis and one warehouse. The release that follows is this one with another
version and one more migration; the one before it is this one, or the newest that is tagged.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support import sending
from support.books import BASE_URL, CAMPAIGNS, LOSS, OFFERS, SSPS, Books, Offer, agreed, document
from support.lanes import Lane
from support.processes import PATIENCE_S, eventually
from support.stack import Stack, run

from snapbid.base.version import RELEASE, ROOT
from snapbid.embedded import Redis

NEXT = "99.0.0"
MIGRATION = "alter table ssp add column note text; create table next_daily (day date primary key);"
BUDGETED, CLICKED = (468, 60), (336, 280)  # sizes, each with its campaign
CPM = 2_000_000
AFFORDED = 60  # wins
CLICK = {
    "id": "c", "media": "banner", "w": 336, "h": 280,
    "adm": "<a href='https://shop.example/?click={{click_id}}'>Shop</a>",
}  # fmt: skip
CONVERSIONS = "select coalesce(sum(conversions), 0)::int as total from conversion_daily"


class Release(NamedTuple):
    """An installed release: a directory for PYTHONPATH, and its version."""

    path: Path
    version: str


def install(sources: Path, path: Path, version: str) -> Release:
    """Install a built package beside the one under test."""
    shutil.copytree(sources, path / "snapbid", ignore=shutil.ignore_patterns("__pycache__"))
    described = path / f"snapbid-{version}.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text(f"Metadata-Version: 2.4\nName: snapbid\nVersion: {version}\n")
    return Release(path, version)


def newest_tag() -> str | None:
    """The newest release before this commit; None if there is none, or no repository."""
    asked = ("git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^")
    told = subprocess.run(asked, capture_output=True, text=True)
    return told.stdout.strip() if told.returncode == 0 else None


def build(tag: str, folder: Path) -> Path:
    """Build the extensions of a tag in place; return its package."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", tag, "native", "src", "setup.py", "pyproject.toml",
         "README.md", "LICENSE"], check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    building = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(building, cwd=folder, env={**os.environ, "CFLAGS": "-O0"}, check=True)
    return folder / "src" / "snapbid"


def command(
    dsn: str, release: Release, *arguments: str, input: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a `snapbid` command of a release."""
    environ = {"PYTHONPATH": str(release.path), "SNAPBID_DATABASE_URL": dsn}
    return run(environ, *arguments, input=input)


def succeed(dsn: str, release: Release, *arguments: str, input: str = "") -> str:
    done = command(dsn, release, *arguments, input=input)
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_up(dsn: str, release: Release) -> None:
    """Make the schema of a release, and with its commands what the books want."""
    sending.run_sql(dsn, "drop schema public cascade; create schema public")
    succeed(dsn, release, "migrate")
    for descriptor, canonical in SSPS.items():
        succeed(dsn, release, "ssp", "add", descriptor, "--canonical", canonical)
    documents = [
        *(document(name, size, cpm) for size, (name, cpm) in CAMPAIGNS.items()),
        document("budgeted", BUDGETED, CPM, budget={"total": AFFORDED * CPM / 10**9}),
        document("clicked", CLICKED, CPM, creatives=[CLICK]),
    ]
    lines = "\n".join(text for _, text in documents)
    succeed(dsn, release, "campaign", "import", "-", input=lines)


class Fleet:
    """Two machines, each with a server and a drain, and the books of those who trade with both."""

    def __init__(self, dsn: str, redis: Redis, folder: Path, release: Release) -> None:
        set_up(dsn, release)
        offers = {**OFFERS, BUDGETED: Offer("budgeted", (CPM,), fickle=True)}
        self.own = Books(random.Random(7), offers=offers)
        self.redis = redis
        self.events = 0
        self.unavailable_s: list[float] = []
        self._key = succeed(dsn, release, "key", "issue", "demo-shop").strip()
        environs = [
            {
                "SNAPBID_HOME": str(folder / name),
                "SNAPBID_DATABASE_URL": dsn,
                "SNAPBID_REDIS_URL": redis.url,
                "SNAPBID_BASE_URL": BASE_URL,
                "PYTHONPATH": str(release.path),
            }
            for name in ("a", "b")
        ]
        self.servers = [Stack(environ) for environ in environs]
        self.drains = [Stack(environ, "drain") for environ in environs]
        for program in (*self.drains, *self.servers):
            self._start(program, release)
        for server in self.servers:
            sending.await_key(server.port, self._key)

    def close(self) -> None:
        for program in (*self.servers, *self.drains):
            program.close()

    def _start(self, program: Stack, release: Release) -> None:
        program.environ["PYTHONPATH"] = str(release.path)
        former = len(program.output)
        program.launch()
        own = f" {release.version}\n"  # "starting snapbid 0.1.0", "started snapbid drain 0.1.0"
        eventually(lambda: own in program.output[former:], f"a start of {own}")
        if program in self.servers:
            program.await_ready()

    def restart(self, program: Stack, release: Release) -> None:
        began = time.monotonic()
        assert program.stop() == 0
        self._start(program, release)
        if program in self.servers:
            self.unavailable_s.append(time.monotonic() - began)

    def restart_with_a_spool(self, server: Stack, release: Release) -> None:
        """Restart a server that has notices on its disk, since Redis was unavailable."""
        asyncio.run(self._bid(8, server))
        self.redis.stop()
        asyncio.run(self._notify(len(self.own.pending) // 2, server))
        spooled = Path(server.environ["SNAPBID_HOME"]) / f"serve-{server.port}"
        assert [file for file in spooled.rglob("*.spool") if file.stat().st_size]
        assert server.stop() == 0
        self.redis.start()
        self._start(server, release)
        eventually(lambda: not [*spooled.rglob("*.spool")], "the notices are settled")

    def trade(self) -> None:
        """Bid on both machines, leave half of the notices for later, and send events."""
        asyncio.run(self._bid(12, *self.servers))
        asyncio.run(self._notify(len(self.own.pending) // 2, *self.servers))
        for server, other in (self.servers, self.servers[::-1]):
            click = asyncio.run(self._click(server))
            event = sending.event("register", f"u-{self.events}", click=click)
            for _ in range(2):  # of which one counts
                assert sending.send(other.port, sending.SINGLE, event, self._key).status == 202
        assert not self.own.wrong, self.own.wrong
        assert self.own.lower == self.own.upper  # each was answered

    async def _bid(self, auctions: int, *servers: Stack) -> None:
        lanes = [Lane(server.port) for server in servers]
        for number in range(auctions):
            await self.own.bid(lanes[number % len(lanes)])
        for lane in lanes:
            lane.close()
        # An SSP whose wins follow losses is not believed: its losses free no money.
        self.own.pending = [
            notice
            for notice in self.own.pending
            if notice.name[2] != LOSS or notice.viewer[0] == "budgeted"
        ]

    async def _notify(self, notices: int, *servers: Stack) -> None:
        lanes = [Lane(server.port) for server in servers]
        for number in range(notices):
            await self.own.fire(lanes[number % len(lanes)], self.own.draw())
        for lane in lanes:
            lane.close()

    async def _click(self, server: Stack) -> str:
        """Bid with a click id, which is returned, for an event to come."""
        self.events += 1
        w, h = CLICKED
        request = {"id": f"click-{self.events}", "imp": [{"id": "1", "banner": {"w": w, "h": h}}]}
        lane = Lane(server.port)
        reply = await lane.post("/api/v1/openrtb2/acme/bid", json.dumps(request).encode())
        lane.close()
        assert reply
        for counter in (self.own.lower, self.own.upper):
            counter["bids", "acme"] += 1
            counter["campaign bids", "clicked"] += 1
        found = re.search(rb"click=([\w-]+)", reply.body)
        assert found, reply
        return found[1].decode()

    def spend_the_budget(self) -> None:
        """Bid and notify until the budget is spent, and somewhat longer."""
        self.own.weights = {BUDGETED: 20}
        deadline = time.monotonic() + PATIENCE_S
        while self.won < AFFORDED and time.monotonic() < deadline:
            asyncio.run(self._bid(20, *self.servers))
            asyncio.run(self._notify(len(self.own.pending), *self.servers))
        asyncio.run(self._bid(20, *self.servers))

    def conversions(self, dsn: str) -> int:
        (row,) = sending.rows(dsn, CONVERSIONS)
        assert row["total"] <= self.events
        return int(row["total"])

    @property
    def won(self) -> int:
        return self.own.lower["campaign wins", "budgeted"]


@pytest.fixture
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Release:
    """The release before: this one by its first number, or the newest that is tagged."""
    if request.param == "this release":
        return install(ROOT / "src" / "snapbid", tmp_path / "before", RELEASE)
    tag = newest_tag()
    if tag is None:
        pytest.skip("no earlier release is tagged")
    return install(build(tag, tmp_path / tag), tmp_path / "before", tag.removeprefix("v"))


@pytest.fixture
def after(tmp_path: Path) -> Release:
    release = install(ROOT / "src" / "snapbid", tmp_path / "after", NEXT)
    schema = release.path / "snapbid" / "warehouse" / "schema"
    (schema / "9999_next.sql").write_text(MIGRATION)
    return release


@pytest.fixture
def fleet(database: str, own_redis: Redis, tmp_path: Path, before: Release) -> Iterator[Fleet]:
    with contextlib.closing(Fleet(database, own_redis, tmp_path, before)) as running:
        yield running


@pytest.mark.parametrize("before", ["this release", "the newest tag"], indirect=True)
def test_nothing_is_lost_or_counted_twice(
    fleet: Fleet, database: str, before: Release, after: Release
) -> None:
    fleet.trade()
    assert "9999_next" in succeed(database, after, "migrate")
    fleet.trade()
    for drain in fleet.drains:
        fleet.restart(drain, after)
        fleet.trade()
    fleet.restart_with_a_spool(fleet.servers[0], after)
    fleet.trade()  # a server of each release, beside each other
    fleet.restart(fleet.servers[1], after)
    fleet.trade()

    refused = command(database, before, "migrate")
    assert (refused.returncode, f"install {NEXT}" in refused.stderr) == (1, True), refused.stderr
    fleet.restart_with_a_spool(fleet.servers[0], before)
    fleet.trade()
    fleet.restart(fleet.servers[1], before)
    for drain in fleet.drains:
        fleet.restart(drain, before)
    fleet.trade()

    fleet.spend_the_budget()
    assert fleet.won == AFFORDED
    assert asyncio.run(agreed(fleet.own, database)) == []
    eventually(lambda: fleet.conversions(database) == fleet.events, "a conversion for each event")
    assert len(sending.rows(database, "select from events")) == fleet.events
    seconds = ", ".join(f"{each:.1f}" for each in fleet.unavailable_s)
    print(f"seconds for which a restart made a server unavailable: {seconds}")
