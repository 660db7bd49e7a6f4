"""How a bid is written down, in Redis and in the spool (the layouts of the *.lua files)."""

from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

WIN: Final = 1
BILLING: Final = 2
LOSS: Final = 4

PLACE_SIZE: Final = 16
RECORD: Final = Struct("<IIIB")  # SSP, campaign, time (epoch s), kinds counted; then the CPM
NOTICE: Final = Struct("<Bh16s")  # kind, loss reason, place


class Remembered(NamedTuple):
    """One bid to remember; `campaign` is the campaign's number, the price a CPM in micro-USD."""

    place: bytes
    campaign: int
    price_micros: int


def place(auction_id: bytes, imp_id: bytes) -> bytes:
    """Where the bid of an auction's impression is found: a digest of the pair, 16 bytes.

    The length in front keeps different pairs apart, and a 128-bit digest keeps hostile ids from
    being made to meet another's. The first two bytes choose a bucket, the others the record in it.
    """
    return blake2b(
        len(auction_id).to_bytes(4, "little") + auction_id + imp_id, digest_size=PLACE_SIZE
    ).digest()


def shard_of(auction_id: bytes, shards: int) -> int:
    """The shard that an auction's bids are in."""
    if shards == 1:
        return 0
    return int.from_bytes(blake2b(auction_id, digest_size=4).digest(), "little") % shards
