"""All keys that the product uses in Redis.

The ledger is divided into shards. All keys of shard N share the hash tag {sbN}, so a script may use
any of them; scripts derive them from KEYS[1], the shard's `epoch`. Letters after N, as in {sb1dz},
decide which primary of a cluster holds the shard (`hash_tag`):

    {sbN}:none                never exists: a script that names it is refused while its slot moves
    {sbN}:epoch               identifies the data set; created by the first client
    {sbN}:r                   the time buckets, and which one takes records; a string if the ledger
                              is closed (closing.py)
    {sbN}:r:TIME_BUCKET:BUCKET    records of bids: field = digest of (auction, impression)
    {sbN}:w:WRITER            number of a writer's last batch, negative if it was rolled back; and
                              the bids refused in it
    {sbN}:ttl                 each TTL of bids in use -> its last heartbeat (heartbeat.lua)
    {sbN}:m:CAMPAIGN          a campaign's spend and holds (money.lua)
    {sbN}:x:CAMPAIGN          when its holds end
    {sbN}:g:CAMPAIGN          its allowance: what this shard was granted of its budget (money.lua)
    {sbN}:account:CAMPAIGN    its account, in one shard: what each shard was granted (allocator.py)
    {sbN}:refused, {sbN}:until:hold, {sbN}:until:pacing
                              campaigns refused for lack of headroom, and until when (money.lua)
    {sbN}:releases, {sbN}:released
                              campaigns with headroom again; the number of the last release
    {sbN}:refills             refill requests of allowances (money.lua)
    {sbN}:fe:CAMPAIGN:USER    a capped user's holds
    {sbN}:fc:CAMPAIGN:USER    a capped user's impressions
    {sbN}:o:M                 outbox: notices for impressions of users in shard M (outbox.py)
    {sbN}:posted              how many entries each outbox has
    {sbN}:o                   the sweeper that leases these outboxes, and until when (hold clock)
    {sbN}:outboxes            time up to which each shard's outbox for this one is delivered
    {sbN}:delivered           time up to which all these outboxes are delivered
    {sbN}:h                   the hold clock (clock.lua)
    {sbN}:spools              time up to which each process has settled the notices it acknowledged
    {sbN}:spools:left         processes that were signed off recently
    {sbN}:mark                written before WAIT (replicas.py)
    {sbN}:unreplicated        set while writes are acknowledged without the required replica
    {sbN}:closed              why workers are refused (closing.py); {sbN}:closed:r and :e keep the
                              former values of r and e
    {sbN}:segment             the current run of Redis, and the progress of the drain (below)
    {sbN}:segments            segments that may have counters -> when each began (epoch s)
    {sbN}:left                ended segments -> number of the last batch that the drain had read
                              when they ended
    {sbN}:c:SEGMENT:YYYY-MM-DD  counters of a day, cumulative
    {sbN}:d                   names of the counters that changed: `SEGMENT YYYY-MM-DD FIELD`
    {sbN}:d:taken             the names that the drain is absorbing
    {sbN}:d:owner             token of the drain at work
    {sbN}:d:at                when the drain last took all changed counters (epoch s)
    {sbN}:g                   `SEGMENT YYYY-MM-DD` -> generation of these counters, raised when they
                              are removed
    {sbN}:e                   stream of server events of some products, for the drain (queues.py)
    {sbN}:accepted            `MINUTE PRODUCT` -> events acknowledged in that minute, less those
                              that get no row, for the self-audit (queue.py)
    {sbN}:discrepancies       figures that contradict each other, for the self-audit
                              (discrepancies.lua)
    {sbN}:seen                when an SSP's last win, impression or loss was counted: `w:7`, epoch s

Fields of the hash {sbN}:segment:

    segment, run, origin      the current segment, the run id of its Redis, and the primary that
                              this Redis replicated before
    confirmed                 the segment for which the drain has restored budgets
    carried                   set once budgets include what the warehouse knew when the epoch began
    warehouse                 the warehouse that numbers the campaigns and SSPs
    adopted                   when it took the ledger over from another warehouse (epoch s)
    read, released            numbers of the last batch of counters that the drain has read, and of
                              the last whose names it has removed; the warehouse has the number of
                              the last batch it absorbed (drain_fence)
    outdated                  segments whose data is older than what the drain has already read
    shards                    the number of shards of the ledger, set on shard 0 first (parts.py)
    moved_from                the epoch of the ledger from which this one was moved
    moved_batches             in shard 0: `EPOCH:BATCH` of each shard of that ledger, the last batch
                              whose names the drain had removed
    moved                     the shard counts of former ledgers, and when their last bids expire
                              here (segment.py)

Elsewhere:

    {golive}:...              samples of SSPs' requests (operations/golive/store.py)
    events:rate:DIGEST        requests of an API key in the last minute
    {events:rate:DIGEST}:n    further events of its batches in the last minute
    report:rate:DIGEST        requests of a report token in the last minute
    diagnosis:rate:DIGEST     the same, for the diagnosis
    demand:rate:DIGEST        the same, for demand signals
    bids:rate:NUMBER          permits leased to workers for an SSP's requests (permits.py)
    report:cache:SSP:...      reports, for five minutes
    ledger:format             the format number of the ledger (format.py)
    drains                    the latest report of each drain (drains.py)
    audit                     the report of the last self-audit (audits.py)
"""

from hashlib import blake2b
from typing import Final

GOLIVE: Final = "{golive}:"
EVENT_RATE: Final = "events:rate:"
REPORT_RATE: Final = "report:rate:"
DIAGNOSIS_RATE: Final = "diagnosis:rate:"
DEMAND_RATE: Final = "demand:rate:"
BID_RATE: Final = "bids:rate:"
REPORT_CACHE: Final = "report:cache:"
DRAINS: Final = "drains"
AUDIT: Final = "audit"
LEDGER_FORMAT: Final = "ledger:format"


# If N primaries divide the slots equally, the first N tags fall on N different primaries for N up
# to 14; up to 48, no primary gets more than two. Numbers alone would leave half of eight empty.
SUFFIXES: Final = (
    "", "dz", "f", "fb", "bp", "db", "ue", "bt", "bq", "dc", "dx", "c", "as", "fb", "cg", "ns",
    "sb", "ek", "er", "fw", "gc", "qh", "cn", "dr", "iz", "di", "fp", "nx", "q", "ad", "bg", "ah",
    "bd", "dc", "ry", "oo", "fg", "pg", "ek", "ap", "by", "dd", "cr", "a", "qe", "bq", "aeu",
    "cm",
)  # fmt: skip


def hash_tag(shard: int) -> str:
    """Return the hash tag of a shard's keys, without braces."""
    return f"sb{shard}{SUFFIXES[shard] if shard < len(SUFFIXES) else ''}"


class ShardKeys:
    """The keys of a shard that Python code uses; scripts derive the remaining keys themselves."""

    __slots__ = ("accepted", "changed", "discrepancies", "drained_at", "epoch", "events",
                 "generations", "left", "mark", "number", "owner", "prefix", "processes",
                 "script_keys", "seen", "segments", "state", "taken",
                 "unreplicated")  # fmt: skip

    def __init__(self, number: int) -> None:
        self.number = number
        self.prefix = prefix = f"{{{hash_tag(number)}}}:"
        self.epoch = f"{prefix}epoch"
        self.script_keys = (self.epoch, f"{prefix}none")  # KEYS of each script
        self.mark = f"{prefix}mark"
        self.unreplicated = f"{prefix}unreplicated"
        self.changed = f"{prefix}d"
        self.taken = f"{prefix}d:taken"
        self.owner = f"{prefix}d:owner"
        self.drained_at = f"{prefix}d:at"
        self.events = f"{prefix}e"
        self.accepted = f"{prefix}accepted"
        self.discrepancies = f"{prefix}discrepancies"
        self.generations = f"{prefix}g"
        self.seen = f"{prefix}seen"
        self.state = f"{prefix}segment"
        self.segments = f"{prefix}segments"
        self.left = f"{prefix}left"
        self.processes = f"{prefix}spools"

    def grants(self, campaign: int) -> str:
        """Return the key of the shard's allowance from a campaign's budget."""
        return f"{self.prefix}g:{campaign}"

    def counters(self, segment: str, day: str) -> str:
        """Return the key of a run's counters for a day (`YYYY-MM-DD`)."""
        return f"{self.prefix}c:{segment}:{day}"


def shard_of(auction_id: bytes, shards: int) -> int:
    """Return the shard that holds an auction's bids or, given a product's name, its events."""
    if shards == 1:
        return 0
    return int.from_bytes(blake2b(auction_id, digest_size=4).digest(), "little") % shards
