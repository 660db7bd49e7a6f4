"""Bids as remember.lua reads them, and what they count: plainly, by the layouts in the scripts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import pack
from typing import Any, NamedTuple

DAY_S = 86_400
FIRST, COUNT, LIMITED = 1, 2, 4


class PlainAnswer(NamedTuple):
    ssp: int
    seconds: int
    counted: bool  # before
    campaigns: list[int]
    entries: bytes


def pair_digest(auction_id: bytes, imp_id: bytes) -> bytes:
    return blake2b(pack("<I", len(auction_id)) + auction_id + imp_id, digest_size=16).digest()


def text_digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def plain_answer(
    auction_id: bytes,
    ssp: int,
    bids: Sequence[tuple[bytes, int, int, Any]],
    user: str | None,
    now: tuple[int, int],
    answer: int,
    counted: bool,
) -> PlainAnswer:
    """Pack an answer; raises struct.error for values that do not fit the layout."""
    entries = []
    for number, (imp_id, marked, price, limits) in enumerate(bids):
        flags = (FIRST if number == 0 else 0) | (0 if counted else COUNT)
        kinds, tail, behind = 0, b"%d" % price, b""
        if limits is not None:
            flags |= LIMITED
            kinds, packed = limits.kinds, limits.at(now[0])
            if limits.longest_s:
                assert user is not None
                tail += text_digest(user) + pack("<I", limits.longest_s)
            behind = pack("<H", len(packed)) + packed
        identity = (marked >> 32) * 2**24 + answer
        record = pack("<IIIHIB", ssp, marked % 2**32, *now, identity, kinds) + tail
        digest = pair_digest(auction_id, imp_id)
        entries.append(pack("<B16sB", flags, digest, len(record)) + record + behind)
    return PlainAnswer(ssp, now[0], counted, [bid[1] % 2**32 for bid in bids], b"".join(entries))


def plain_counts(answers: Iterable[PlainAnswer]) -> dict[int, dict[bytes, int]]:
    """The counts by day and counter name."""
    days: dict[int, Counter[bytes]] = {}
    for answer in answers:
        counts = days.setdefault(answer.seconds // DAY_S, Counter())
        if not answer.counted:
            counts[b"b:%d" % answer.ssp] += 1
        counts.update(b"B:%d" % campaign for campaign in answer.campaigns)
    return {day: dict(counts) for day, counts in days.items()}
