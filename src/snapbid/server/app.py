"""The ASGI application: routes, answers, and errors to statuses, without a framework.

A path that is served as it stands is found by one look-up; each registered SSP has one. What is
not found there is told apart from a wrong method and from an SSP that is not registered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeAlias

from snapbid.describe.routes import DOCS, DOCUMENT
from snapbid.errors import MethodNotAllowed, NotFound, Problem, UnknownSsp
from snapbid.events.endpoint import NAMES as EVENT_NAMES
from snapbid.events.endpoint import PREFIX as EVENTS
from snapbid.exchange.notice import KINDS
from snapbid.exchange.notice import NAMES as NOTICE_NAMES
from snapbid.exchange.notice import PREFIX as NOTICES
from snapbid.exchange.routes import BID_PREFIX, ssp_of
from snapbid.http import (
    Answer,
    Disconnected,
    Headers,
    Receive,
    Scope,
    Send,
    answer,
    drain,
    json_answer,
    problem_answer,
    refused,
)
from snapbid.report.endpoint import PREFIX as REPORTS
from snapbid.server.pace import Pace
from snapbid.tasks import end

BidHandler: TypeAlias = Callable[[Headers, Receive], Awaitable[Answer]]
Page: TypeAlias = Callable[[Scope, Receive], Awaitable[Answer]]

ROUTES: Final = {
    **{path: NOTICE_NAMES[kind] for path, kind in KINDS.items()},
    **{path: f"events_{name}" for path, name in EVENT_NAMES.items()},
    "/healthz": "health",
    "/readyz": "health",
    DOCUMENT: "docs",
    DOCS: "docs",
}

logger = logging.getLogger("snapbid")


class Resources(Protocol):
    """What the application serves from; opened and closed with it."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def missing(self) -> list[str]:
        """What keeps it from serving; empty when ready."""
        ...

    @property
    def bid_endpoints(self) -> Mapping[str, BidHandler]:
        """By path."""
        ...

    @property
    def has_catalog(self) -> bool:
        """Whether the SSPs and campaigns are known yet."""
        ...

    def stray(self, ssp: str) -> None:
        """A bid request came to an SSP that is not registered."""
        ...

    def count(self, route: str, status: int) -> None:
        """A request was answered."""
        ...

    def page(self, path: str) -> Page | None:
        """What is read there with GET or HEAD; below `EVENTS`, with any method."""
        ...


def route_of(path: str) -> str:
    """The name under which requests to a path are counted."""
    if path.startswith(BID_PREFIX):
        return "bid"
    if path.startswith(REPORTS):
        return "report"
    return ROUTES.get(path, "other")


class App:
    """The application over its resources."""

    def __init__(
        self, resources: Resources, started: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self._resources = resources
        self._started = started
        self._pace = Pace()
        self._own: dict[str, Page] = {"/healthz": self._healthz, "/readyz": self._readyz}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        handler = self._resources.bid_endpoints.get(scope["path"])
        try:
            if handler is not None and scope["method"] == "POST":
                found = await handler(dict(scope["headers"]), receive)
            else:
                found = await self._answer(scope, receive)
        except Disconnected:
            found = answer(400)
        except Problem as problem:
            found = problem_answer(problem)
        except Exception:
            logger.exception("a request failed")
            found = problem_answer(Problem("the request could not be served"))
        route = "bid" if handler is not None else route_of(scope["path"])
        self._resources.count(route, found.start["status"])
        await send(found.start)
        await send({"type": "http.response.body", "body": found.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path = scope["path"]
        if not path.startswith(NOTICES):
            await self._pace.turn()
        page = self._own.get(path) or self._resources.page(path)
        if page is not None:
            if scope["method"] not in ("GET", "HEAD") and not path.startswith(EVENTS):
                raise await refused(MethodNotAllowed("GET, HEAD"), receive)
            return await page(scope, receive)
        ssp = ssp_of(path)
        if ssp is None:
            raise await refused(NotFound("there is nothing at this path"), receive)
        if scope["method"] != "POST":
            raise await refused(MethodNotAllowed("POST"), receive)
        if not self._resources.has_catalog:
            await drain(receive)
            return answer(204)  # nobody knows yet whose path it is
        self._resources.stray(ssp)
        raise await refused(UnknownSsp("the SSP id in the path is not registered"), receive)

    async def _healthz(self, _scope: Scope, _receive: Receive) -> Answer:
        return json_answer(200, {"status": "ok"})

    async def _readyz(self, _scope: Scope, _receive: Receive) -> Answer:
        missing = await self._resources.missing()
        if missing:
            detail = f"missing: {', '.join(missing)}"
            return json_answer(503, {"error": "not_ready", "detail": detail, "missing": missing})
        return json_answer(200, {"status": "ready"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._resources.open()
                except Exception:
                    logger.exception("a worker could not start")
                    await send({"type": "lifespan.startup.failed"})
                    return
                await send({"type": "lifespan.startup.complete"})
                if self._started is not None:
                    started = asyncio.create_task(self._started())
            elif message["type"] == "lifespan.shutdown":
                if self._started is not None:
                    await end(started)
                await self._resources.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
