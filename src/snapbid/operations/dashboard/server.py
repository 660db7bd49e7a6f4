"""The private port over HTTP, read only: `/metrics`, and the page `/ops` with its data and assets.

If the port is bound to a loopback address, only requests whose `Host` is `localhost` or a loopback
address are served, which foils DNS rebinding by web pages. Any other address requires a token. If
there is a token, requests must carry it as `Bearer` or as the password of `Basic`, which browsers
prompt for (RFC 6750, RFC 7617).
"""

import hmac
import ipaddress
import re
import socketserver
import sys
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Final

import msgspec

from snapbid import metrics
from snapbid.base.http import basic_password
from snapbid.base.setting_values import Secret
from snapbid.base.settings import bound
from snapbid.operations.dashboard.gauges import gauges
from snapbid.operations.dashboard.view import page
from snapbid.operations.dashboard.watch import Watch

JSON: Final = "application/json"
METRICS_PATH: Final = "/metrics"
DATA_PATH: Final = "/ops/data"
PAGES: Final = {  # path: file, media type
    "/ops": ("ops.html", "text/html; charset=utf-8"),
    "/ops/ops.css": ("ops.css", "text/css; charset=utf-8"),
    "/ops/ops.js": ("ops.js", "text/javascript; charset=utf-8"),
    "/ops/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
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
CODES: Final = {
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    421: "misdirected_request",
}
CHALLENGES: Final = (
    ("WWW-Authenticate", "Bearer"),
    ("WWW-Authenticate", 'Basic realm="snapbid", charset="UTF-8"'),
)
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::[0-9]{1,5})?")


class _Handler(BaseHTTPRequestHandler):
    server: "OpsServer"
    server_version = "snapbid"
    sys_version = ""
    timeout = 10  # s without a byte

    def do_GET(self) -> None:
        if not self.server.answers_to(self.headers.get_all("Host", [])):
            self._refuse(421, "this port answers to localhost and loopback addresses only")
            return
        if not self.server.admits(self.headers.get_all("Authorization", [])):
            detail = "send SNAPBID_OPS_TOKEN as a bearer token, or as the password of any user"
            self._refuse(401, detail, *CHALLENGES)
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
        self._refuse(405, "only GET and HEAD are allowed", ("Allow", "GET, HEAD"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = _refuse_method

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with a JSON error instead of the base class's page, which quotes the request."""
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
    """Serves the figures of a Watch to clients that have the token.

    If there is no token, only this machine is served. Raises OSError if the port cannot be bound,
    and ValueError if there is no token although the address is not a loopback address.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, watch: Watch, token: Secret | None) -> None:
        family, address = bound(host, port)
        self._is_loopback = _is_loopback(address)
        if token is None and not self._is_loopback:
            raise ValueError(f"{host} is not a loopback address: set a token")
        self.address_family = family
        super().__init__(address, _Handler)
        self._watch = watch
        self._token = token
        self.answers: dict[str, Callable[[], tuple[bytes, str]]] = {
            METRICS_PATH: self._metrics,
            DATA_PATH: self._data,
            **{path: _asset(*asset) for path, asset in PAGES.items()},
        }

    def server_bind(self) -> None:
        """Bind without the base class's lookup of the host name, which may be slow."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, unless the error means that the client disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="ops", daemon=True).start()

    def answers_to(self, hosts: Sequence[str]) -> bool:
        """Return whether to answer requests with these `Host` headers."""
        if not self._is_loopback:
            return True
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            return False
        bracketed, name = found.groups()
        try:
            address = ipaddress.ip_address(bracketed or name)
        except ValueError:
            return bracketed is None and name.lower() == "localhost"
        return address.is_loopback and (address.version == 6) == (bracketed is not None)

    def admits(self, authorizations: Sequence[str]) -> bool:
        """Return whether to answer requests with these `Authorization` headers."""
        if self._token is None:
            return True
        if len(authorizations) != 1:
            return False
        given = _given_token(authorizations[0])
        return hmac.compare_digest(given, self._token.key())

    def _metrics(self) -> tuple[bytes, str]:
        watch = self._watch
        series = gauges(watch.snapshot)
        return metrics.exposition(watch.settings.metrics_path, series), metrics.CONTENT_TYPE

    def _data(self) -> tuple[bytes, str]:
        return msgspec.json.encode(page(self._watch)), JSON


def is_loopback(host: str, port: int) -> bool:
    """Return whether binding to this host and port would use a loopback address. Raises OSError."""
    return _is_loopback(bound(host, port)[1])


def _is_loopback(address: tuple[str, int]) -> bool:
    return ipaddress.ip_address(address[0]).is_loopback


def _given_token(authorization: str) -> bytes:
    """Return the token in a header; b"" if it has none."""
    scheme, _, credentials = authorization.strip().partition(" ")
    text = credentials.strip().encode("latin-1", "replace")
    if scheme.lower() == "bearer":
        return text
    if scheme.lower() == "basic":
        return basic_password(text)
    return b""


def _asset(name: str, media_type: str) -> Callable[[], tuple[bytes, str]]:
    """Read a file now, before an upgrade of the package replaces it.

    Returns a function that returns the file's content and media type.
    """
    text = (resources.files(__package__) / "assets" / name).read_bytes()
    return lambda: (text, media_type)
