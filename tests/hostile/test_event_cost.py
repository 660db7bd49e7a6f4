"""Events that are as dear as their sender can make them: bids, and other partners' events, go on.

Nothing here depends on how busy a machine is: what is read at once is counted in steps of Python,
what is waited for in the order of the answers, and what waits in bytes.
"""

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from support.event_reading import read_batch
from support.sending import NOW, event

from snapbid.events.outcomes import Product
from snapbid.events.rulebook import RefusedRequest
from snapbid.events.strict_json import MAX_BYTES, MAX_VALUES, Malformed
from snapbid.events.validate import batch_steps, read_single

PRODUCT = Product("shop")
BODY_BYTES = 4 << 20
LINES = 100 * MAX_VALUES  # of Python, for one event
FLOOD = 40


def packed(**context: Any) -> bytes:
    return json.dumps(event("login", **context), separators=(",", ":")).encode()


def within(levels: int, leaf: object) -> object:
    for _ in range(levels):
        leaf = {"email": leaf}
    return leaf


DEAR: dict[str, Callable[[], bytes]] = {  # made when needed: each takes a while
    "lists": lambda: packed(own=[[]] * 1_300_000),
    "numbers": lambda: packed(own=[1] * 2_000_000),
    "objects": lambda: packed(own=[{"a": 1}] * 500_000),
    "keys": lambda: packed(**{f"k{number}": 1 for number in range(300_000)}),
    "flags in names of personal data": lambda: packed(own=within(28, [[]] * 1_300_000)),
    "as many as one may have": lambda: packed(own=within(28, [[]] * (MAX_VALUES // 2 - 40))),
    "a long text": lambda: packed(own="a" * 4_000_000),
    "a long hash": lambda: packed(privacy={"own_hash": "1" * 4_000_000}),
    "no array": lambda: b'{"a":[' + b"[]," * 1_300_000 + b"1]}",
    "cut short": lambda: packed(own=[[]] * 1_300_000)[:-9],
}


def lines_of(work: Callable[[], object]) -> int:
    """Lines of Python that some work takes."""
    lines = 0

    def trace(frame: FrameType, kind: str, argument: object) -> Any:
        nonlocal lines
        lines += kind == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("dear", DEAR)
def test_what_is_read_at_once_is_bounded(dear: str) -> None:
    body = DEAR[dear]()
    assert len(body) <= BODY_BYTES
    for test in (False, True):
        assert lines_of(lambda test=test: read_single(body, PRODUCT, NOW, test=test)) < LINES  # type: ignore[misc]
    for batch in (b"[%b]" % body, body):
        steps = batch_steps(batch, PRODUCT, NOW, lenient=True)

        def step(steps: Any = steps) -> bool:
            try:
                next(steps)
            except (StopIteration, Malformed):
                return False
            return True

        while True:
            more: list[bool] = []
            assert lines_of(lambda more=more: more.append(step())) < LINES  # type: ignore[misc]
            if not more[0]:
                break


def test_many_commas_are_not_many_events() -> None:
    read = read_batch(b"[%b]" % packed(own="," * 120_000), PRODUCT, NOW)
    assert isinstance(read, RefusedRequest)
    assert (read.code, read.message) == ("VALIDATION_ERROR", "[0] is too large")
    fits = packed(own="," * (MAX_VALUES - 50))
    assert not isinstance(read_batch(b"[%b]" % fits, PRODUCT, NOW), RefusedRequest)
    assert len(fits) < MAX_BYTES
