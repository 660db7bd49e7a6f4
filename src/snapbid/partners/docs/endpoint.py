"""`/openapi.json`, and the pages at `/docs`, which show it with Scalar (`assets/ATTRIBUTION.md`).

Bodies are built on the first request, in a thread, so they do not delay bids. What they are built
from is loaded with this module: a running server describes itself, even if an upgrade has replaced
the files of its package. The names of assets contain a hash or version, so browsers may cache them
forever.
"""

import asyncio
import gzip
import os
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from snapbid.base.errors import MethodNotAllowed
from snapbid.base.http import (
    JSON,
    NO_BODY,
    Answer,
    Handler,
    Receive,
    Scope,
    accepts_gzip,
    answer,
    has_current,
    not_modified,
    refused,
)
from snapbid.base.settings import Settings
from snapbid.partners.docs import attributes, document, routes

HTML: Final = b"text/html; charset=utf-8"
SCRIPT: Final = b"text/javascript; charset=utf-8"
STYLE: Final = b"text/css; charset=utf-8"
# Scalar adds its style sheet to the page by script, and shows image responses as blobs.
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    b"img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ASSETS: Final = files("snapbid.partners.docs").joinpath("assets")
LIBRARY: Final = ASSETS.joinpath("scalar.js.gz")
_LIBRARY: Final = os.open(str(LIBRARY), os.O_RDONLY)  # 1.4 MB, which few workers are asked for
LIBRARY_VERSION: Final = "1.76.0"
LIBRARY_PATH: Final = f"{routes.DOCS}/scalar-{LIBRARY_VERSION}.js"
PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{style}">
</head>
<body data-document="{document}">
<noscript>Without scripts, read <a href="{document}">{document}</a>.</noscript>
<div id="reference"></div>
<script src="{library}"></script>
<script src="{script}"></script>
</body>
</html>
"""
_RENEWED: Final = (b"cache-control", b"public, max-age=300")
_KEPT: Final = (b"cache-control", b"public, max-age=31536000, immutable")
_COMMON: Final = ((b"vary", b"accept-encoding"), (b"x-content-type-options", b"nosniff"))
# The document is public; browser-based tools may read it.
_SHARED: Final = (b"access-control-allow-origin", b"*")
_GUARDED: Final = ((b"content-security-policy", POLICY), (b"referrer-policy", b"no-referrer"))

Headers = tuple[tuple[bytes, bytes], ...]


class PackedBody(NamedTuple):
    """A gzipped body; `tag`: its ETag without the last letter, which indicates the encoding."""

    gzipped: bytes
    tag: str


class DescriptionPage:
    """Serves one file of the API documentation; `pack` builds the gzipped file."""

    def __init__(
        self, pack: Callable[[], bytes], media_type: bytes, *headers: tuple[bytes, bytes]
    ) -> None:
        self._pack = pack
        self._media_type = media_type
        self._headers = headers
        self._body: PackedBody | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Answer GET and HEAD requests."""
        if scope["method"] not in ("GET", "HEAD"):
            raise await refused(MethodNotAllowed("GET, HEAD"), receive)
        async with self._lock:
            if self._body is None:
                self._body = await asyncio.to_thread(self._prepare)
        return await self._answer(self._body, scope)

    def _prepare(self) -> PackedBody:
        packed = self._pack()
        return PackedBody(packed, sha256(packed).hexdigest()[:32])

    async def _answer(self, body: PackedBody, scope: Scope) -> Answer:
        headers = dict(scope["headers"])
        compress = accepts_gzip(headers.get(b"accept-encoding", b""))
        tag = f'"{body.tag}{"z" if compress else "p"}"'.encode()
        own: Headers = ((b"etag", tag), *_COMMON, *self._headers)
        if has_current(scope["headers"], tag):
            return not_modified(own)
        if compress:
            own = ((b"content-encoding", b"gzip"), *own)
            text = body.gzipped
        else:
            text = await asyncio.to_thread(gzip.decompress, body.gzipped)
        reply = answer(200, text, self._media_type, own)
        return Answer(reply.start, NO_BODY) if scope["method"] == "HEAD" else reply


async def lead_to_docs(scope: Scope, receive: Receive) -> Answer:
    """Redirect GET and HEAD requests for the root to the documentation."""
    if scope["method"] not in ("GET", "HEAD"):
        raise await refused(MethodNotAllowed("GET, HEAD"), receive)
    return answer(302, headers=((b"location", routes.DOCS.encode()), _RENEWED))


def pages(settings: Settings) -> dict[str, Handler]:
    """Return the documentation's handlers by path."""
    style, script = (ASSETS.joinpath(name).read_bytes() for name in ("docs.css", "docs.js"))
    style_path, script_path = _hashed(style, "css"), _hashed(script, "js")

    def page(document: str, title: str) -> DescriptionPage:
        text = PAGE.format(title=title, document=escape(document), library=LIBRARY_PATH,
                           style=style_path, script=script_path).encode()  # fmt: skip
        return DescriptionPage(partial(_packed, text), HTML, _RENEWED, *_GUARDED)

    return {
        routes.START: lead_to_docs,
        routes.DOCUMENT: DescriptionPage(
            lambda: _encoded(document.document(settings)), JSON, _RENEWED, _SHARED
        ),
        routes.DOCS: page(routes.DOCUMENT, "Snapbid API"),
        routes.ATTRIBUTES: page(routes.ATTRIBUTES_DOCUMENT, "What we honour · Snapbid API"),
        routes.ATTRIBUTES_DOCUMENT: DescriptionPage(
            lambda: _encoded(attributes.document()), JSON, _RENEWED
        ),
        style_path: DescriptionPage(partial(_packed, style), STYLE, _KEPT),
        script_path: DescriptionPage(partial(_packed, script), SCRIPT, _KEPT),
        LIBRARY_PATH: DescriptionPage(_library, SCRIPT, _KEPT),
    }


def _library() -> bytes:
    return os.pread(_LIBRARY, os.fstat(_LIBRARY).st_size, 0)


def _encoded(document: object) -> bytes:
    return _packed(msgspec.json.encode(document))


def _packed(text: bytes) -> bytes:
    return gzip.compress(text, 9, mtime=0)


def _hashed(text: bytes, suffix: str) -> str:
    return f"{routes.DOCS}/docs.{sha256(text).hexdigest()[:16]}.{suffix}"
