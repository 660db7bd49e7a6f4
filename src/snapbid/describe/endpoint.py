"""`GET /openapi.json` and `GET /docs`: made when they are first asked for, in a thread.

Bids are served meanwhile, and a worker that nobody asks has neither the modules nor the text.
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


class Text(NamedTuple):
    """What is answered, as it is and compressed; each has an ETag of its own."""

    plain: bytes
    packed: bytes
    media_type: bytes
    headers: Headers


class Described:
    """One of the two; `make` gives the body and its headers."""

    def __init__(self, make: Callable[[], tuple[bytes, Headers]], media_type: bytes) -> None:
        self._make = make
        self._media_type = media_type
        self._text: Text | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Answer GET and HEAD."""
        if scope["method"] not in ("GET", "HEAD"):
            raise await refused(MethodNotAllowed("GET, HEAD"), receive)
        async with self._turn:
            if self._text is None:
                self._text = await asyncio.to_thread(self._prepare)
        return _answer(self._text, scope)

    def _prepare(self) -> Text:
        plain, headers = self._make()
        return Text(plain, gzip.compress(plain, 9, mtime=0), self._media_type, headers)


def pages(settings: Settings) -> dict[str, Described]:
    """By path."""

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

    return {DOCUMENT: Described(document, JSON), DOCS: Described(page, HTML)}


def _answer(text: Text, scope: Scope) -> Answer:
    headers = dict(scope["headers"])
    packed = accepts_gzip(headers.get(b"accept-encoding", b""))
    body = text.packed if packed else text.plain
    tag = b'"%b"' % sha256(body).hexdigest()[:32].encode()
    own: Headers = ((b"etag", tag), *_COMMON, *text.headers)
    if tag in {each.strip().removeprefix(b"W/") for each in
               headers.get(b"if-none-match", b"").split(b",")}:  # fmt: skip
        return Answer({"type": "http.response.start", "status": 304, "headers": [*own]}, b"")
    if packed:
        own = ((b"content-encoding", b"gzip"), *own)
    found = answer(200, body, text.media_type, own)
    return Answer(found.start, b"") if scope["method"] == "HEAD" else found
