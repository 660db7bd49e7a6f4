"""The names of everything that the product keeps in Redis.

The ledger is cut into shards. All keys of shard N carry the hash tag {sbN}, so a script may touch
any of them; the scripts derive them from KEYS[1], the shard's `epoch`:

    {sbN}:epoch               names the data set; made by whoever comes first
    {sbN}:r:GRANULE:BUCKET    records of bids: field = digest of (auction, impression)
    {sbN}:w:WRITER            number of a writer's last batch; negative once it was taken back
    {sbN}:v:WRITER            its verdicts
    {sbN}:m:CAMPAIGN          money used by a campaign and held for it (limits.lua)
    {sbN}:q:CAMPAIGN          which holds of a campaign end when
    {sbN}:fh:CAMPAIGN:USER    a capped user's holds
    {sbN}:fc:CAMPAIGN:USER    a capped user's impressions
    {sbN}:c:YYYY-MM-DD        counters of a day, cumulative
    {sbN}:d                   names of the counters that changed: `YYYY-MM-DD FIELD`
    {sbN}:d:taken             those that the drain is absorbing
    {sbN}:d:owner             token of the drain at work
    {sbN}:d:at                when the drain last took all that had changed (epoch s)
    {sbN}:g                   day -> generation of its counters, raised when they are removed
    {sbN}:seen                when an SSP's wins, impressions and losses last grew: `w:7`, epoch s

Elsewhere:

    {sb0}:e                   stream of server events on their way to the warehouse
    {golive}:...              what SSPs have sent (golive/store.py)
    events:rate:DIGEST        requests of an API key in the last minute
    report:rate:DIGEST        requests of a report token in the last minute
    report:cache:SSP:...      reports, for five minutes
"""

from typing import Final

EVENT_STREAM: Final = "{sb0}:e"
GOLIVE: Final = "{golive}:"
EVENT_RATE: Final = "events:rate:"
REPORT_RATE: Final = "report:rate:"
REPORT_CACHE: Final = "report:cache:"


class ShardKeys:
    """The keys of one shard that Python code names; the scripts name the others."""

    __slots__ = ("changed", "drained_at", "epoch", "generations", "owner", "prefix", "seen",
                 "taken")  # fmt: skip

    def __init__(self, number: int) -> None:
        self.prefix = prefix = f"{{sb{number}}}:"
        self.epoch = f"{prefix}epoch"
        self.changed = f"{prefix}d"
        self.taken = f"{prefix}d:taken"
        self.owner = f"{prefix}d:owner"
        self.drained_at = f"{prefix}d:at"
        self.generations = f"{prefix}g"
        self.seen = f"{prefix}seen"

    def counters(self, day: str) -> str:
        """The counters of a day, `YYYY-MM-DD`."""
        return f"{self.prefix}c:{day}"
