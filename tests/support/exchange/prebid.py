"""Prebid Server (Go), from a binary and its checkout, with its adapters' endpoints set to ours."""

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from support.http import ask
from workload.serving import free_ports

START_S = 60.0
STOP_S = 30.0


class PrebidServer:
    """A running Prebid Server."""

    def __init__(self, port: int) -> None:
        self._port = port

    def auction(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Hold an auction; returns its response. Fails unless that is a 200."""
        reply = ask(self._port, "POST", "/openrtb2/auction", json.dumps(request).encode())
        assert reply.status == 200, f"{reply.status}: {reply.body.decode()}"
        response: dict[str, Any] = reply.json()
        return response

    def ready(self) -> bool:
        with contextlib.suppress(OSError, HTTPException):
            return ask(self._port, "GET", "/status", within_s=5).status == 200
        return False


@contextlib.contextmanager
def prebid_server(
    binary: Path, checkout: Path, endpoints: Mapping[str, str]
) -> Iterator[PrebidServer]:
    """Run it in a directory of its own, where it reads its settings and the checkout's data."""
    port, admin_port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="prebid-server-") as folder:
        settings = _settings(port, admin_port) | {"adapters": _adapters(checkout, endpoints)}
        (Path(folder) / "pbs.json").write_text(json.dumps(settings))
        (Path(folder) / "static").symlink_to(checkout / "static")
        log = Path(folder) / "log"
        # It would fetch vendor lists and rates from the internet; a proxy that is not there keeps
        # it from that. Go takes no proxy to loopback addresses.
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{free_ports(1)[0]}", "HOME": folder}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [binary], cwd=folder, env=environ, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            server = PrebidServer(port)
            deadline = time.monotonic() + START_S
            while not server.ready():
                ended = process.poll() is not None or time.monotonic() > deadline
                assert not ended, f"Prebid Server does not start:\n{log.read_text()[:4000]}"
                time.sleep(0.05)
            yield server
        finally:
            process.terminate()
            process.wait(STOP_S)


def _adapters(checkout: Path, endpoints: Mapping[str, str]) -> dict[str, Any]:
    """The settings of adapters: those of ours unchanged, all others disabled."""
    known = [path.stem for path in (checkout / "static" / "bidder-info").glob("*.yaml")]
    others: dict[str, Any] = {name: {"disabled": True} for name in known}
    return others | {name: {"endpoint": url, "disabled": False} for name, url in endpoints.items()}


def _settings(port: int, admin_port: int) -> dict[str, Any]:
    """Its settings, with every check of bids enforced.

    It passes privacy signals on and leaves it to us to obey them.
    """
    return {
        "host": "127.0.0.1",
        "port": port,
        "admin": {"enabled": False},
        "admin_port": admin_port,
        "status_response": "ready",
        "external_url": f"http://127.0.0.1:{port}",
        "gdpr": {"enabled": False, "default_value": "0"},
        "ccpa": {"enforce": False},
        "lmt": {"enforce": False},
        "currency_converter": {"fetch_interval_seconds": 0},
        "auction_timeouts_ms": {"default": 5000, "max": 10000},
        "tmax_default": 5000,
        "validations": {
            "banner_creative_max_size": "enforce",
            "secure_markup": "enforce",
            "max_creative_width": 4000,
            "max_creative_height": 4000,
        },
        "account_defaults": {"debug_allow": True},
    }
