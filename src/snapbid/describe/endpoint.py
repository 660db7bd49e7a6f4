"""`/openapi.json` and the pages at `/docs`: rendered at the first request, in a thread.

Bids are served meanwhile, and a worker that is never asked loads neither the modules nor the text.
Assets have the hash of their text in their names, so that browsers may keep them for good.
"""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from snapbid.describe import routes
from snapbid.errors import MethodNotAllowed
from snapbid.http import JSON, Answer, Receive, Scope, accepts_gzip, answer, refused
from snapbid.settings import Settings

if TYPE_CHECKING:
    from snapbid.describe.page import RenderedPages

HTML: Final = b"text/html; charset=utf-8"
SCRIPT: Final = b"text/javascript; charset=utf-8"
STYLE: Final = b"text/css; charset=utf-8"
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_RENEWED: Final = (b"cache-control", b"public, max-age=300")
_KEPT: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_COMMON: Final = ((b"vary", b"accept-encoding"), (b"x-content-type-options", b"nosniff"))
# The document is no secret, and tools in a browser may want to read it.
_SHARED: Final = (b"access-control-allow-origin", b"*")
_GUARDED: Final = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"))

Headers = tuple[tuple[bytes, bytes], ...]


class RenderedBody(NamedTuple):
    """A body, plain and gzipped; each form has its own ETag."""

    plain: bytes
    gzipped: bytes
    media_type: bytes
    headers: Headers


class DescriptionPage:
    """The document, a page or an asset; `render` gives the body."""

    def __init__(
        self, render: Callable[[], bytes], media_type: bytes, *headers: tuple[bytes, bytes]
    ) -> None:
        self._render = render
        self._media_type = media_type
        self._headers = headers
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
        plain = self._render()
        packed = gzip.compress(plain, 9, mtime=0)
        return RenderedBody(plain, packed, self._media_type, self._headers)


async def lead_to_docs(scope: Scope, receive: Receive) -> Answer:
    """Answer GET and HEAD of the first page that somebody looks at."""
    if scope["method"] not in ("GET", "HEAD"):
        raise await refused(MethodNotAllowed("GET, HEAD"), receive)
    return answer(302, headers=((b"location", routes.DOCS.encode()), _RENEWED))


def pages(settings: Settings) -> dict[str, Callable[[Scope, Receive], Awaitable[Answer]]]:
    """The handlers by path."""
    style, script = _asset("docs.css"), _asset("docs.js")
    style_path, script_path = _hashed("docs", style, "css"), _hashed("docs", script, "js")

    @cache
    def site() -> "RenderedPages":
        from snapbid.describe.document import document
        from snapbid.describe.page import Assets, render

        return render(document(settings), Assets(style_path, script_path))

    def document() -> bytes:
        import msgspec

        from snapbid.describe.document import document

        return msgspec.json.encode(document(settings))

    def entries() -> bytes:
        import msgspec

        return msgspec.json.encode(site().entries)

    def page(path: str) -> bytes:
        return site().pages[path].encode()

    shown = (routes.DOCS, routes.BIDDING, routes.REPORTS, routes.EVENTS, routes.ATTRIBUTES)
    return {
        routes.START: lead_to_docs,
        routes.DOCUMENT: DescriptionPage(document, JSON, _RENEWED, _SHARED),
        **{path: DescriptionPage(partial(page, path), HTML, _RENEWED, *_GUARDED) for path in shown},
        routes.SEARCH: DescriptionPage(entries, JSON, _RENEWED),
        style_path: DescriptionPage(lambda: style, STYLE, _KEPT),
        script_path: DescriptionPage(lambda: script, SCRIPT, _KEPT),
    }


def _asset(name: str) -> bytes:
    return files("snapbid.describe").joinpath("assets", name).read_bytes()


def _hashed(name: str, text: bytes, suffix: str) -> str:
    return f"{routes.DOCS}/{name}.{sha256(text).hexdigest()[:16]}.{suffix}"


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
