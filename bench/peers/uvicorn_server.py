"""uvicorn with its fastest settings: uvloop, httptools, no access log, one process."""

import uvicorn


def run(target: str, port: int) -> None:
    """Serve `module:application` until SIGTERM."""
    uvicorn.run(
        target,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
        backlog=4096,
    )
