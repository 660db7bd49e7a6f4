"""The private port: metrics over all workers of the machine (contract 8)."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from snapbid import metrics


class _Handler(BaseHTTPRequestHandler):
    server: "OpsServer"
    server_version = "snapbid"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/metrics":
            self._send(200, metrics.exposition(self.server.counts), metrics.CONTENT_TYPE)
        else:
            body = b'{"error":"not_found","detail":"there is nothing at this path"}'
            self._send(404, body, "application/json")

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class OpsServer(ThreadingHTTPServer):
    """Serves the counts in a directory. Raises OSError where the port is taken."""

    daemon_threads = True

    def __init__(self, host: str, port: int, counts: Path) -> None:
        super().__init__((host, port), _Handler)
        self.counts = counts

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, name="ops", daemon=True).start()
