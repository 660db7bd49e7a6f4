"""ASGI applications with a constant answer, served with the product's own settings or by uvicorn.

python -m bench.constant full|full_read|empty|empty_read [uvicorn|plain|taskless]

`plain`: the worker's threads have the operating system's default scheduling. `taskless`: requests
run without a task, as the product's bids and notices do.
"""

import multiprocessing
import os
import sys
from functools import partial
from importlib import import_module
from typing import Any, Final

from snapbid.base.settings import load
from snapbid.server import serve
from snapbid.server.granian import install

PATH: Final = "/api/v1/openrtb2/acme/bid"
BODY: Final = b'{"id":"%b"}' % (b"x" * 1015)  # 1,024 bytes
HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
START: Final[dict[str, Any]] = {"type": "http.response.start", "status": 200, "headers": HEADERS}
END: Final[dict[str, Any]] = {"type": "http.response.body", "body": BODY}
EMPTY_START: Final = START | {"status": 204, "headers": []}
EMPTY_END: Final = END | {"body": b""}


class Constant:
    """An application with a constant answer, which reads the request's body first or ignores it."""

    def __init__(self, start: dict[str, Any], end: dict[str, Any], *, reads: bool) -> None:
        self._start = start
        self._end = end
        self._reads = reads

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["method"] == "GET":  # the readiness check
            await send(START)
            await send(END)
        else:
            if self._reads:
                await receive()
            await send(self._start)
            await send(self._end)


full = Constant(START, END, reads=False)
full_read = Constant(START, END, reads=True)
empty = Constant(EMPTY_START, EMPTY_END, reads=False)
empty_read = Constant(EMPTY_START, EMPTY_END, reads=True)


async def _lifespan(receive: Any, send: Any) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return


def _load_target(target: str, taskless: bool, _listening: object) -> Any:
    module, _, name = target.partition(":")
    application = getattr(import_module(module), name)
    if taskless:
        install(application, lambda path: True)
    return application


def main() -> None:
    target = f"bench.constant:{sys.argv[1]}"
    settings = load(os.environ)
    if "uvicorn" in sys.argv:
        from bench.peers.uvicorn_server import run

        run(target, settings.port)
        return
    multiprocessing.set_start_method("spawn")
    # The product's own function, so that the options stay the same, with another application.
    server = serve._server(settings)
    if "plain" not in sys.argv:
        serve.schedule_as_batch()
    taskless = "taskless" in sys.argv
    server.serve(target_loader=partial(_load_target, target, taskless), wrap_loader=False)


if __name__ == "__main__":
    main()
