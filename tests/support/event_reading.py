"""Server events as tests read them: of all presets, and a batch in one go."""

from snapbid.events.fields import CORE, IGAMING
from snapbid.events.outcomes import BatchResult, Product
from snapbid.events.rulebook import RefusedRequest
from snapbid.events.strict_json import Malformed
from snapbid.events.validate import batch_steps, refuse_malformed

PRESETS = (CORE, IGAMING)


def read_batch(
    body: bytes, product: Product, now_ms: int, *, lenient: bool = False, test: bool = False
) -> BatchResult | RefusedRequest:
    """Read a batch as the endpoint does, but without a pause."""
    steps = batch_steps(body, product, now_ms, lenient=lenient, test=test)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: BatchResult | RefusedRequest = end.value
            return result
        except Malformed as reason:
            return refuse_malformed(body, reason)
