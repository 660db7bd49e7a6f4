"""Reading the bodies of both endpoints (contract 7): what is accepted, or every violation.

A valid event takes the fast way, or with unknown fields the wide one; whatever these do not
take is examined field by field. Nothing here answers HTTP: the results are `outcomes`.
"""

from collections.abc import Generator, Iterable
from typing import Final, TypeAlias

from msgspec import Raw

from snapbid.events import fast, wide
from snapbid.events.decode import (
    SUSPECT,
    Malformed,
    NotArray,
    TooMany,
    check_text,
    document,
    elements,
)
from snapbid.events.examine import Examination
from snapbid.events.fields import CORE
from snapbid.events.messages import MAX_EVENTS, sentence
from snapbid.events.outcomes import (
    BATCH_TOO_LARGE,
    VALIDATION_ERROR,
    Accepted,
    Batch,
    Failed,
    Finding,
    Product,
    Refusal,
    Single,
    code_of,
)
from snapbid.events.structs import decoder

AHEAD_MS: Final = 3_600_000
"""How far in the future an event may lie."""

Steps: TypeAlias = Generator[None, None, Batch | Refusal]

BODY: Final = "body"
"""The field of a violation that is about the body as a whole."""


class _Reader:
    """One request's way of reading events."""

    def __init__(self, body: bytes, product: Product, now_ms: int, *, test: bool) -> None:
        presets = product.presets
        self._presets = presets if CORE in presets else presets | {CORE}
        self._product = product.name.encode()
        self._latest_ms = now_ms + AHEAD_MS
        self._decode = decoder(self._presets).decode
        # In test mode warnings are wanted, which only the thorough way gives.
        self._fast = not test
        check_text(body)
        self._suspect = SUSPECT.search(body) is not None

    def read(self, raw: bytes | Raw) -> Accepted | Examination:
        """Raises Malformed."""
        if self._fast:
            text = bytes(raw)
            if not (self._suspect and SUSPECT.search(text)):
                taken = fast.read(text, self._decode, self._product, self._latest_ms) or wide.read(
                    text, self._presets, self._product, self._latest_ms
                )
                if taken is not None:
                    return taken
        return Examination(document(raw), self._presets, self._latest_ms)

    def accepted(self, examined: Examination) -> Accepted:
        return examined.accepted(self._product)


def read_single(
    body: bytes, product: Product, now_ms: int, *, test: bool = False
) -> Single | Refusal:
    """Read one envelope. `test` adds warnings, and changes nothing else."""
    try:
        reader = _Reader(body, product, now_ms, test=test)
        read = reader.read(body)
    except Malformed as reason:
        return _malformed(reason)
    if isinstance(read, Accepted):
        return Single(read, [])
    if read.violations:
        return _refusal(findings_of(read.name, read.violations))
    return Single(reader.accepted(read), findings_of(read.name, read.warnings) if test else [])


def read_batch(
    body: bytes, product: Product, now_ms: int, *, lenient: bool = False, test: bool = False
) -> Batch | Refusal:
    """Read an array of 1 to 600 envelopes, all or nothing.

    With `lenient` or `test` the good ones are given beside the bad ones; `test` adds warnings. A
    body that is no such array, or malformed in any event, is refused whatever is asked for.
    """
    steps = batch_steps(body, product, now_ms, lenient=lenient, test=test)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            read: Batch | Refusal = end.value
            return read


def batch_steps(
    body: bytes, product: Product, now_ms: int, *, lenient: bool = False, test: bool = False
) -> Steps:
    """As `read_batch`, pausing after each event: whoever has others to serve does so in between."""
    try:
        batch = yield from _read_all(body, product, now_ms, test=test)
    except Malformed as reason:
        return _malformed(reason)
    except NotArray:
        return _body(VALIDATION_ERROR, "not_array")
    except TooMany:
        return _body(BATCH_TOO_LARGE, "max_items")
    if not batch.accepted and not batch.failed:
        return _body(VALIDATION_ERROR, "min_items")
    if batch.failed and not lenient and not test:
        return _refusal([one for failed in batch.failed for one in failed.violations])
    return batch


def _read_all(
    body: bytes, product: Product, now_ms: int, *, test: bool
) -> Generator[None, None, Batch]:
    reader = _Reader(body, product, now_ms, test=test)
    batch = Batch([], [], [], [])
    for index, raw in enumerate(elements(body, MAX_EVENTS)):
        yield
        read = reader.read(raw)
        if not isinstance(read, Accepted):
            if test:
                batch.warnings.extend(findings_of(read.name, read.warnings, index))
            if read.violations:
                found = findings_of(read.name, read.violations, index)
                batch.failed.append(Failed(index, code_of(found), read.name, found))
                continue
            read = reader.accepted(read)
        batch.accepted.append(read)
        batch.places.append(index)
    return batch


def findings_of(
    event: str | None, found: Iterable[tuple[str, str]], index: int | None = None
) -> list[Finding]:
    """Violations or warnings, (field, rule), as partners see them; `index` in a batch."""
    if index is None:
        return [Finding(field or BODY, rule, event) for field, rule in found]
    prefix = f"[{index}]"
    return [
        Finding(f"{prefix}.{field}" if field else prefix, rule, event, index)
        for field, rule in found
    ]


def _refusal(violations: list[Finding]) -> Refusal:
    first = violations[0]
    message = sentence(first.field, first.rule, len(violations) - 1)
    return Refusal(code_of(violations), message, violations)


def _body(code: str, rule: str, reason: str = "") -> Refusal:
    message = sentence(BODY, rule, 0) + (f": {reason}" if reason else "")
    return Refusal(code, message, [Finding(BODY, rule, None)])


def _malformed(reason: Malformed) -> Refusal:
    return _body(VALIDATION_ERROR, "malformed_json", str(reason))
