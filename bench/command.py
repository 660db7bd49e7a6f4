"""Helpers that the runs share: the command line, a scratch directory, embedded stores."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from bench.about import about, write
from bench.client import MAX_SECONDS
from bench.ready import check, orderly_end
from snapbid.embedded import Home, Postgres, Redis

TURN_S: Final = click.FloatRange(0, MAX_SECONDS, min_open=True)

Measure = Callable[..., dict[str, Any]]


def command(kind: str) -> Callable[[Measure], click.Command]:
    """Turn a function that measures into a command; its click options become its arguments.

    The function returns `method`, `figures` and whatever else its section reads.
    """

    def decorate(measure: Measure) -> click.Command:
        @click.command(context_settings={"show_default": True})
        @click.option(
            "--output",
            type=click.Path(dir_okay=False, path_type=Path),
            help="A file for the result.  [default: stdout]",
        )
        @functools.wraps(measure)
        def main(output: Path | None, **options: Any) -> None:
            check()
            origin = about()
            with orderly_end():
                write({"kind": kind, "about": origin, **measure(**options)}, output)

        return main

    return decorate


@contextmanager
def scratch() -> Iterator[Path]:
    """Create a temporary directory for one run."""
    with TemporaryDirectory(prefix="snapbid-bench-") as folder:
        Path(folder).chmod(0o711)  # the database runs as another user where this one is root
        yield Path(folder)


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[Redis, Postgres]]:
    """Start Redis and PostgreSQL as `snapbid up` does."""
    with ExitStack() as stack:
        home = stack.enter_context(Home(folder))
        redis, postgres = Redis(home), Postgres(home)
        for store in (redis, postgres):
            stack.callback(store.stop)  # first, since a start may be interrupted
            store.start()
        yield redis, postgres
