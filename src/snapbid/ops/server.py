"""The private port over HTTP: `/metrics`, `/ops` and what belongs to it, read only.

Bound to a loopback address, it answers only requests whose `Host` is a loopback name, so that a web
page elsewhere whose name was made to point here (DNS rebinding) reads nothing.
"""

import ipaddress
import socket
import socketserver
import threading
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Final

import msgspec

from snapbid import metrics
from snapbid.ops.gauges import gauges
from snapbid.ops.view import page
from snapbid.ops.watch import Watch

JSON: Final = "application/json"
METRICS_PATH: Final = "/metrics"
DATA_PATH: Final = "/ops/data"
PAGES: Final = {  # path: file, media type
    "/ops": ("ops.html", "text/html; charset=utf-8"),
    "/ops/ops.css": ("ops.css", "text/css; charset=utf-8"),
    "/ops/ops.js": ("ops.js", "text/javascript; charset=utf-8"),
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
CODES: Final = {404: "not_found", 405: "method_not_allowed", 421: "misdirected_request"}


class _Handler(BaseHTTPRequestHandler):
    server: "OpsServer"
    server_version = "snapbid"
    sys_version = ""
    timeout = 10  # s without a byte

    def do_GET(self) -> None:
        if not self.server.answers_to(self.headers.get("Host", "")):
            self._refuse(421, "this port answers to localhost and loopback addresses only")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._send(302, b"", JSON, ("Location", "/ops"))
        elif path in self.server.answers:
            body, media_type = self.server.answers[path]()
            self._send(200, body, media_type)
        else:
            self._refuse(404, "there is nothing at this path")

    do_HEAD = do_GET

    def _refuse_method(self) -> None:
        self.close_connection = True
        self._refuse(405, "only GET and HEAD", ("Allow", "GET, HEAD"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = _refuse_method

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse without the base class's page, which quotes the request."""
        self.close_connection = True
        self._refuse(int(code), HTTPStatus(code).phrase)

    def _refuse(self, status: int, detail: str, *headers: tuple[str, str]) -> None:
        document = {"error": CODES.get(status, "bad_request"), "detail": detail}
        self._send(status, msgspec.json.encode(document), JSON, *headers)

    def _send(self, status: int, body: bytes, media_type: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*HEADERS.items(), *headers):
            self.send_header(name, value)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class OpsServer(ThreadingHTTPServer):
    """Serves the snapshot of a watch. Raises OSError where the port is taken."""

    daemon_threads = True

    def __init__(self, host: str, port: int, watch: Watch) -> None:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = addresses[0][0]
        super().__init__((host, port), _Handler)
        self._watch = watch
        self._loopback = ipaddress.ip_address(str(self.server_address[0])).is_loopback
        self.answers: dict[str, Callable[[], tuple[bytes, str]]] = {
            METRICS_PATH: self._metrics,
            DATA_PATH: self._data,
            **{path: cache(lambda asset=asset: _asset(*asset)) for path, asset in PAGES.items()},
        }

    def server_bind(self) -> None:
        """Bind without the base class's look-up of the host's name, which may be slow."""
        socketserver.TCPServer.server_bind(self)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="ops", daemon=True).start()

    def answers_to(self, host: str) -> bool:
        """Whether requests with this `Host` header are answered."""
        if not self._loopback:
            return True
        name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return name.lower() == "localhost"

    def _metrics(self) -> tuple[bytes, str]:
        watch = self._watch
        return metrics.exposition(watch.paths.counts, gauges(watch)), metrics.CONTENT_TYPE

    def _data(self) -> tuple[bytes, str]:
        return msgspec.json.encode(page(self._watch)), JSON


def _asset(name: str, media_type: str) -> tuple[bytes, str]:
    return (resources.files(__package__) / "assets" / name).read_bytes(), media_type
