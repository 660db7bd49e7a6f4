"""`GET /openapi.json` and `GET /docs`: rendered at the first request, in a thread.

Bids are served meanwhile, and a worker that is never asked loads neither the modules nor the text.
"""

import asyncio
import gzip
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from snapbid.describe.routes import DOCS, DOCUMENT
from snapbid.errors import MethodNotAllowed
from snapbid.http import JSON, Answer, Receive, Scope, accepts_gzip, answer, refused
from snapbid.settings import Settings

HTML: Final = b"text/html; charset=utf-8"
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_COMMON: Final = (
    (b"cache-control", b"public, max-age=300"),
    (b"vary", b"accept-encoding"),
    (b"x-content-type-options", b"nosniff"),
)
# The document is no secret, and tools in a browser may want to read it.
_SHARED: Final = (b"access-control-allow-origin", b"*")

Headers = tuple[tuple[bytes, bytes], ...]


class RenderedBody(NamedTuple):
    """A body, plain and gzipped; each form has its own ETag."""

    plain: bytes
    gzipped: bytes
    media_type: bytes
    headers: Headers


class DescriptionPage:
    """The document or the page; `render` gives the body and its headers."""

    def __init__(self, render: Callable[[], tuple[bytes, Headers]], media_type: bytes) -> None:
        self._render = render
        self._media_type = media_type
        self._body: RenderedBody | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Answer GET and HEAD."""
        if scope["method"] not in ("GET", "HEAD"):
            raise await refused(MethodNotAllowed("GET, HEAD"), receive)
        async with self._lock:
            if self._body is None:
                self._body = await asyncio.to_thread(self._prepare)
        return _answer(self._body, scope)

    def _prepare(self) -> RenderedBody:
        plain, headers = self._render()
        return RenderedBody(plain, gzip.compress(plain, 9, mtime=0), self._media_type, headers)


def pages(settings: Settings) -> dict[str, DescriptionPage]:
    """The handlers by path."""

    def document() -> tuple[bytes, Headers]:
        import msgspec

        from snapbid.describe.document import document

        return msgspec.json.encode(document(settings)), (_SHARED,)

    def page() -> tuple[bytes, Headers]:
        from snapbid.describe.document import document
        from snapbid.describe.page import STYLE, page

        style = b64encode(sha256(STYLE.encode()).digest()).decode()
        policy = (b"content-security-policy", POLICY.format(style=style).encode())
        referrer = (b"referrer-policy", b"no-referrer")
        return page(document(settings)).encode(), (policy, referrer)

    return {DOCUMENT: DescriptionPage(document, JSON), DOCS: DescriptionPage(page, HTML)}


def _answer(rendered: RenderedBody, scope: Scope) -> Answer:
    headers = dict(scope["headers"])
    compress = accepts_gzip(headers.get(b"accept-encoding", b""))
    body = rendered.gzipped if compress else rendered.plain
    tag = b'"%b"' % sha256(body).hexdigest()[:32].encode()
    own: Headers = ((b"etag", tag), *_COMMON, *rendered.headers)
    if tag in {known.strip().removeprefix(b"W/") for known in
               headers.get(b"if-none-match", b"").split(b",")}:  # fmt: skip
        return Answer({"type": "http.response.start", "status": 304, "headers": [*own]}, b"")
    if compress:
        own = ((b"content-encoding", b"gzip"), *own)
    reply = answer(200, body, rendered.media_type, own)
    return Answer(reply.start, b"") if scope["method"] == "HEAD" else reply
