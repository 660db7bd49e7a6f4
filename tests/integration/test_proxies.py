"""The proxy configurations that ship, run by the real programs before a real server, over TLS."""

import gzip
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.client import JSON_HEADERS
from support.commands import succeed
from support.http import Reply, ask_on
from support.processes import accepts, eventually
from support.remembered import counts, looking
from support.stack import Stack

from snapbid.bidding.routes import bid_path
from snapbid.operations.export import read
from workload.serving import free_ports

HOST = "bid.example"
CREATIVE = {"id": "b", "media": "banner", "w": 1, "h": 1, "adm": "<p>" + "long " * 500 + "</p>"}
CAMPAIGN = {"id": "c", "advertiser": "shop.example", "cpm": 2, "creatives": [CREATIVE]}
NO_BID = b'{"id": "x", "imp": [{"id": "1", "banner": {"w": 7, "h": 7}}]}'
NGINX = """
daemon off; error_log stderr; pid {folder}/pid; events {{}}
http {{
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder}; access_log off;
    include {folder}/site.conf;
}}
"""


class Proxied:
    """A server behind a proxy, and the certificate that the proxy shows."""

    def __init__(self, served: Stack, port: int, certificate: Path) -> None:
        self.served, self.port = served, port
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def ask(self, method: str, path: str, body: bytes | None = None, *, source: str = "127.0.0.1",
            headers: dict[str, str] | None = None) -> Reply:  # fmt: skip
        """A request over TLS, from an address of this machine."""
        wire = socket.create_connection(("127.0.0.1", self.port), 60, (source, 0))
        client = http.client.HTTPConnection(HOST, self.port, timeout=60)
        with self._trust.wrap_socket(wire, server_hostname=HOST) as client.sock:
            return ask_on(client, method, path, body, {"Host": HOST, **(headers or {})})

    def bid(self, ssp: str = "acme", **more: Any) -> Reply:
        auction = "a b/ü" if ssp == "acme" else f"{ssp}'s"  # no two SSPs have the same
        document = {"id": auction, "imp": [{"id": "1", "banner": {"w": 1, "h": 1}}]}
        headers = {**JSON_HEADERS, **more.pop("headers", {})}
        return self.ask(
            "POST", bid_path(ssp), json.dumps(document).encode(), headers=headers, **more
        )


def nginx(folder: Path, site: str) -> list[str]:
    (folder / "site.conf").write_text(re.sub(r" *listen \[::].*\n", "", site))
    owner = "user root; " if os.geteuid() == 0 else ""  # the folder is closed to others
    (folder / "nginx.conf").write_text(owner + NGINX.format(folder=folder))
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, site: str) -> list[str]:
    own = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"
    (folder / "Caddyfile").write_text(own + site)
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificate")
    folder = tmp_path_factory.mktemp("certificate")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        f"-subj /CN={HOST} -addext subjectAltName=DNS:{HOST} "
        "-keyout privkey.pem -out fullchain.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def served(module_stack: Callable[..., Stack]) -> Stack:
    """A server with an SSP, one that may send from 127.0.0.5 alone, and a campaign."""
    started = module_stack(SNAPBID_BASE_URL=f"https://{HOST}", SNAPBID_TRUSTED_PROXIES="127.0.0.1")
    for command in (["ssp", "add", "acme"], ["ssp", "add", "nova"],
                    ["ssp", "set", "nova", "--allow", "127.0.0.5"]):  # fmt: skip
        succeed(started.environ, *command)
    succeed(started.environ, "campaign", "import", "-", input=json.dumps(CAMPAIGN))
    return started


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxied(
    request: pytest.FixtureRequest,
    served: Stack,
    certificate: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxied]:
    """The exported file with another address, port and certificate, and nothing else changed."""
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian: {name})")
    folder = tmp_path_factory.mktemp(name)
    (port,) = free_ports(1)
    site = read({"nginx": "nginx.conf", "caddy": "Caddyfile"}[name])
    changes = {"127.0.0.1:8000": f"127.0.0.1:{served.port}",
               "/etc/ssl/bid.example": str(certificate)}  # fmt: skip
    if name == "nginx":
        changes["listen 443"] = f"listen 127.0.0.1:{port}"
    else:
        changes["# tls "] = f"\n{HOST}:{port} {{\n\ttls "
        changes[f"\n{HOST} {{\n"] = "\n"
    for old, new in changes.items():
        assert old in site
        site = site.replace(old, new)
    log = (folder / "log").open("w+")
    command = {"nginx": nginx, "caddy": caddy}[name](folder, site)
    environ = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    try:
        proxy = Proxied(served, port, certificate / "fullchain.pem")
        eventually(lambda: process.poll() is not None or accepts(port), f"{name} listens")
        assert process.poll() is None, (folder / "log").read_text()
        yield proxy
    finally:
        process.terminate()
        process.wait()
        log.close()


def test_a_bid_and_its_notices(proxied: Proxied) -> None:
    """The notification URL has the proxy's address, and an id that must arrive as it was sent."""
    eventually(lambda: proxied.bid().status == 200, "a bid")
    answer = proxied.bid()
    [bid] = json.loads(answer.body)["seatbid"][0]["bid"]
    wins, imps = counted(proxied.served)
    for kind in ("nurl", "burl"):
        url = urlsplit(bid[kind])
        assert (url.scheme, url.netloc) == ("https", HOST)
        assert "a%20b%2F%C3%BC" in url.query
        assert proxied.ask("GET", f"{url.path}?{url.query}").status == 200
    eventually(lambda: counted(proxied.served) == (wins + 1, imps + 1), "both count")
    metrics = proxied.served.get("/metrics", ops=True)[1].decode()
    assert 'outcome="unknown"} 0' in metrics or 'outcome="unknown"' not in metrics


def counted(served: Stack) -> tuple[int, int]:
    """The wins and impressions in the ledger."""
    with looking(served.environ["SNAPBID_REDIS_URL"]) as store:
        fields = [field for of_day in counts(store).values() for field in of_day.items()]
    wins, imps = (sum(n for name, n in fields if name.startswith(kind)) for kind in ("w:", "i:"))
    return wins, imps


def test_no_bid_is_an_empty_204(proxied: Proxied) -> None:
    answer = proxied.ask("POST", bid_path("acme"), NO_BID, headers=JSON_HEADERS)
    assert (answer.status, answer.body) == (204, b"")


def test_gzip_passes_in_both_directions(proxied: Proxied) -> None:
    """What Snapbid packs arrives packed; what it does not pack, the proxy leaves alone."""
    packed = {**JSON_HEADERS, "Content-Encoding": "gzip"}
    answer = proxied.ask("POST", bid_path("acme"), gzip.compress(NO_BID), headers=packed)
    assert answer.status == 204
    answer = proxied.bid(headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(answer.body))["seatbid"]
    assert "content-encoding" not in proxied.bid().headers


def test_limits_of_size_are_snapbids(proxied: Proxied) -> None:
    answer = proxied.ask("POST", bid_path("acme"), b" " * 300_000, headers=JSON_HEADERS)
    assert (answer.status, json.loads(answer.body)["error"]) == (413, "too_large")
    answer = proxied.ask("POST", "/v3/s2s/batch", b" " * 4_500_000, headers=JSON_HEADERS)
    assert json.loads(answer.body)["code"]


def test_client_addresses_are_forwarded_and_cannot_be_forged(proxied: Proxied) -> None:
    allowed = proxied.bid("nova", source="127.0.0.5")
    assert allowed.status == 200
    assert proxied.bid("nova", source="127.0.0.6").status == 403
    forged = {"X-Forwarded-For": "127.0.0.5"}
    assert proxied.bid("nova", source="127.0.0.6", headers=forged).status == 403


def test_connections_to_workers_stay_open(proxied: Proxied) -> None:
    """Twenty requests, each on a connection of its own, take few connections to the workers."""
    assert proxied.served.process
    before = opened(proxied.served.port)
    for _ in range(20):
        assert proxied.bid().status == 200
    assert len(opened(proxied.served.port) - before) <= 2


def opened(port: int) -> set[str]:
    """The local ends of connections to a port, open or lately closed (proc(5), tcp)."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    pairs = (line.split()[1:3] for line in lines)
    return {local for local, remote in pairs if remote.endswith(f":{port:04X}")}
