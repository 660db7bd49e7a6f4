"""The commands of the page on production, as they stand there: backup, destruction, restore."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client import JSON_HEADERS
from support.commands import succeed
from support.http import ask
from support.processes import eventually
from support.stack import Stack, fetch

import snapbid.server
from snapbid.bidding.routes import bid_path
from snapbid.embedded import Postgres, redis_server
from workload.serving import free_ports

PAGE = (Path(snapbid.server.__file__).parent / "PRODUCTION.md").read_text(encoding="utf-8")
DSN, URL = "SNAPBID_DATABASE_URL", "SNAPBID_REDIS_URL"
CREATIVE = {"id": "b", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
CAMPAIGN = {"id": "c", "advertiser": "shop.example", "cpm": 2, "budget": {"total": 0.01}}
SHIMS = {
    "snapbid": f'exec {sys.executable} -m snapbid "$@"',
    "sudo": 'exec "$@"',
    "chown": "exit 0",
    # Debian's service by its name; those of Snapbid are the test's.
    "systemctl": """case "$*" in
    "stop redis-server") redis-cli -p $REDIS_PORT shutdown save; exit 0 ;;
    "start redis-server") redis-server $REDIS_CONF --daemonize yes >/dev/null
        until redis-cli -p $REDIS_PORT ping 2>/dev/null | grep -q PONG; do sleep 0.1; done ;;
    esac""",
}


def commands(name: str) -> str:
    """The block of the page that is marked with a name."""
    found = re.search(rf"^```sh {name}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


class Debian:
    """A machine as the page has it: Redis in its directory, by its configuration, on TCP."""

    def __init__(self, folder: Path, dsn: str, postgres: Path) -> None:
        self.folder = folder
        self.data, self.conf = folder / "var-lib-redis", folder / "redis.conf"
        (port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{port}"
        self.data.mkdir()
        self.conf.write_text(f"port {port}\ndir {self.data}\nappendonly yes\n")
        programs = folder / "bin"
        programs.mkdir()
        for name, script in SHIMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        servers = [Path(server.path) for server in redis_server.installed()]
        clients = [server.with_name("redis-cli") for server in servers]  # not beside each
        os.symlink(servers[0], programs / "redis-server")
        os.symlink(next(client for client in clients if client.exists()), programs / "redis-cli")
        self.environ = {
            **os.environ,
            "PATH": f"{programs}:{postgres}:{os.environ['PATH']}",
            "REDIS_PORT": str(port),
            "REDIS_CONF": str(self.conf),
            URL: self.url,
            DSN: dsn,
        }

    def run(self, script: str) -> None:
        """Run commands of the page in the folder, stopping at the first that fails."""
        here = script.replace("/var/lib/redis", str(self.data))
        here = here.replace("/etc/redis/redis.conf", str(self.conf))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", here],
            cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def debian(postgres: Postgres, database: str, tmp_path: Path) -> Iterator[Debian]:
    assert postgres.process
    programs = Path(f"/proc/{postgres.process.pid}/exe").readlink().parent
    machine = Debian(tmp_path, database, programs)
    machine.run("systemctl start redis-server")
    yield machine
    machine.run("systemctl stop redis-server")


@contextlib.contextmanager
def running(debian: Debian) -> Iterator[Stack]:
    """A server and a drain on the machine's stores."""
    environ = {name: debian.environ[name] for name in (DSN, URL)}
    environ["SNAPBID_HOME"] = str(debian.folder / "home")
    with contextlib.closing(Stack(environ, "drain")) as drain:
        drain.launch()
        with contextlib.closing(Stack(environ)) as served:
            served.start()
            yield served


def bid(served: Stack, auction: str) -> int:
    body = {"id": auction, "imp": [{"id": "1", "banner": {"w": 300, "h": 250}}]}
    text = json.dumps(body).encode()
    return ask(served.port, "POST", bid_path("acme"), text, JSON_HEADERS).status


def win(served: Stack, auction: str) -> None:
    assert served.get(f"/rtb/win?id={auction}&impId=1")[0] == 200


def counted(dsn: str) -> list[tuple[int, int, int]]:
    """Bids, wins and spend of the campaign, in micro-USD."""
    sql = "select bids, wins, spend_micros from campaign_daily"
    return asyncio.run(fetch(dsn, sql))


def test_backups_restore_everything(debian: Debian, database: str) -> None:
    """Figures, open bids and what is left of a budget; both stores were lost."""
    succeed(debian.environ, "ssp", "add", "acme")
    succeed(
        debian.environ,
        "campaign",
        "import",
        "-",
        input=json.dumps(CAMPAIGN | {"creatives": [CREATIVE]}),
    )
    with running(debian) as served:
        eventually(lambda: bid(served, "a1") == 200, "a bid")
        assert [bid(served, auction) for auction in ("a2", "a3")] == [200, 200]
        win(served, "a1")
        win(served, "a2")
        eventually(lambda: counted(database) == [(3, 2, 4_000)], "the drain")
        debian.run(commands("backup"))
        assert bid(served, "lost") == 200
        win(served, "lost")
        eventually(lambda: counted(database) == [(4, 3, 6_000)], "the drain")
    debian.run("redis-cli -u $SNAPBID_REDIS_URL flushall")
    debian.run(commands("restore"))
    assert counted(database) == [(3, 2, 4_000)]
    assert "\nappendonly yes\n" in debian.conf.read_text()
    with running(debian) as served:
        win(served, "a3")
        eventually(lambda: counted(database) == [(3, 3, 6_000)], "the open bid's win")
        eventually(lambda: bid(served, "a4") == 200, "the budget's confirmation")
        assert bid(served, "a5") == 200
        assert bid(served, "a6") == 204  # all 0.01 USD are spent or held
        eventually(lambda: counted(database) == [(5, 3, 6_000)], "the drain")
    debian.run("systemctl stop redis-server && systemctl start redis-server")  # from its new file
    debian.run("redis-cli -u $SNAPBID_REDIS_URL dbsize | grep -qv '^0$'")
