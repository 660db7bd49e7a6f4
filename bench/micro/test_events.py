"""Server events: a batch of 600 of all kinds, in microseconds per event, and the same with peers.

"Peer" figures are those of `bench/peers`, which only check, without ids and canonical form;
"stored" adds both.
"""

from collections.abc import Callable
from typing import Any

from bench import events
from bench.peers import event_jsonschema, event_pydantic
from snapbid.events.fields import CORE, IGAMING
from snapbid.events.outcomes import BatchResult, Product, SingleResult
from snapbid.events.rulebook import RefusedRequest
from snapbid.events.validate import batch_steps, read_single

PRODUCT = Product("demo-casino", frozenset((CORE, IGAMING)))
Envelopes = list[dict[str, Any]]
Violations = Callable[[bytes], list[Any]]


def one_wrong(made: Envelopes) -> Envelopes:
    made[300]["context"]["ip_address"] = "localhost"
    return made


def all_wrong(made: Envelopes) -> Envelopes:
    for event in made:
        event["context"]["ip_address"] = "localhost"
    return made


def unknown_fields(made: Envelopes) -> Envelopes:
    for event in made:
        event["context"]["vendor_reference"] = "a-17"
    return made


def nulls(made: Envelopes) -> Envelopes:
    for event in made:
        event["identity"]["anonymous_id"] = None
    return made


def measure(benchmark: Any, function: Callable[[bytes], Any], body: bytes) -> Any:
    benchmark.extra_info["calls"] = events.BATCH
    return benchmark(function, body)


def read(body: bytes, *, test: bool = False) -> BatchResult | RefusedRequest:
    """Read a batch as the endpoint does, but without pauses."""
    steps = batch_steps(body, PRODUCT, events.NOW_MS, test=test)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: BatchResult | RefusedRequest = end.value
            return result


def accepted(benchmark: Any, made: Envelopes) -> None:
    batch = measure(benchmark, read, events.encode(made))
    assert isinstance(batch, BatchResult)
    assert len(batch.accepted) == events.BATCH
    assert len({event.event for event in batch.accepted}) == 25


def refused(benchmark: Any, made: Envelopes, wrong: int) -> None:
    refusal = measure(benchmark, read, events.encode(made))
    assert isinstance(refusal, RefusedRequest)
    assert len(refusal.violations) == wrong


def test_events_batch(benchmark: Any) -> None:
    accepted(benchmark, events.generate())


def test_events_batch_unknown_fields(benchmark: Any) -> None:
    accepted(benchmark, unknown_fields(events.generate()))


def test_events_batch_nulls(benchmark: Any) -> None:
    accepted(benchmark, nulls(events.generate()))


def test_events_batch_one_wrong(benchmark: Any) -> None:
    refused(benchmark, one_wrong(events.generate()), 1)


def test_events_batch_all_wrong(benchmark: Any) -> None:
    refused(benchmark, all_wrong(events.generate()), events.BATCH)


def test_events_single(benchmark: Any) -> None:
    bodies = [events.encode(event) for event in events.generate()]

    def each() -> None:
        for body in bodies:
            assert isinstance(read_single(body, PRODUCT, events.NOW_MS), SingleResult)

    benchmark.extra_info["calls"] = len(bodies)
    benchmark(each)


def test_events_batch_test_mode(benchmark: Any) -> None:
    def look(body: bytes) -> BatchResult | RefusedRequest:
        return read(body, test=True)

    assert isinstance(measure(benchmark, look, events.encode(events.generate())), BatchResult)


def peer(benchmark: Any, violations: Violations, made: Envelopes, wrong: int) -> None:
    assert len(measure(benchmark, violations, events.encode(made))) == wrong


def test_events_peer_jsonschema(benchmark: Any) -> None:
    peer(benchmark, event_jsonschema.violations, events.generate(), 0)


def test_events_peer_jsonschema_one_wrong(benchmark: Any) -> None:
    peer(benchmark, event_jsonschema.violations, one_wrong(events.generate()), 1)


def test_events_peer_pydantic(benchmark: Any) -> None:
    peer(benchmark, event_pydantic.violations, events.generate(), 0)


def test_events_peer_pydantic_one_wrong(benchmark: Any) -> None:
    peer(benchmark, event_pydantic.violations, one_wrong(events.generate()), 1)


def test_events_peer_pydantic_stored(benchmark: Any) -> None:
    made = measure(benchmark, event_pydantic.stored, events.encode(events.generate()))
    assert len({event_id for event_id, _ in made}) == events.BATCH
