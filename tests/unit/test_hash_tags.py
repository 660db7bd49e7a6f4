"""Which primaries of a cluster the shards' hash tags lie on."""

from collections import Counter

import pytest
from redis.crc import REDIS_CLUSTER_HASH_SLOTS as SLOTS
from redis.crc import key_slot

from snapbid.base.redis_keys import hash_tag


def shards_by_primary(count: int) -> Counter[int]:
    """Shards by primary, if slots are divided as `redis-cli --cluster create` does."""
    ends = [round((primary + 1) * SLOTS / count) for primary in range(count)]
    slots = [key_slot(hash_tag(shard).encode()) for shard in range(count)]
    return Counter(next(i for i, end in enumerate(ends) if slot < end) for slot in slots)


@pytest.mark.parametrize("count", range(1, 15))
def test_each_primary_has_one_shard(count: int) -> None:
    assert shards_by_primary(count) == Counter(range(count))


@pytest.mark.parametrize("count", range(15, 49))
def test_no_primary_of_many_has_more_than_two_shards(count: int) -> None:
    assert max(shards_by_primary(count).values()) <= 2


def test_tags_differ_however_many_shards_there_are() -> None:
    tags = [hash_tag(shard) for shard in range(200)]
    assert len(set(tags)) == len(tags)
