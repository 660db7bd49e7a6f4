"""ASGI applications with a constant answer, served with the product's own settings or by uvicorn.

`plain`: the worker's threads have the operating system's default scheduling. `taskless`: requests
run without a task, as the product's bids and notices do.
"""

import argparse
import multiprocessing
import os
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
    parser = argparse.ArgumentParser("python -m bench.constant", description=__doc__)
    parser.add_argument("kind", choices=("full", "full_read", "empty", "empty_read"))
    parser.add_argument("how", nargs="?", choices=("uvicorn", "plain", "taskless"))
    chosen = parser.parse_args()
    target = f"bench.constant:{chosen.kind}"
    settings = load(os.environ)
    if chosen.how == "uvicorn":
        from bench.peers.uvicorn_server import run

        run(target, settings.port)
        return
    multiprocessing.set_start_method("spawn")
    # The product's own function, so that the options stay the same, with another application.
    server = serve._server(settings)
    if chosen.how != "plain":
        serve.schedule_as_batch()
    taskless = chosen.how == "taskless"
    server.serve(target_loader=partial(_load_target, target, taskless), wrap_loader=False)


if __name__ == "__main__":
    main()
