"""Count a day's bids and notices in the auction log, for the self-audit (contract 5.5 and 11)."""

import datetime
import glob
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from snapbid.auctionlog.files import DAY_MS, as_os_error

EDGE_MS: Final = 10_000  # around midnight, where worker and ledger may name different days
CLOSED_MS: Final = 2 * 3_600_000  # after midnight: until then a notice counts on its bid's day
MEMORY: Final = "256MB"

_ROWS: Final = """
CREATE VIEW rows AS
SELECT kind, verdict, test, ssp, auction_id, imp_id, campaign_id, epoch_ms(time) AS ms
FROM read_parquet(getvariable('paths'))
"""
_BIDS: Final = f"""
SELECT campaign_id, count(*) FROM rows
WHERE kind = 'bid' AND NOT test
    AND ms BETWEEN $start + {EDGE_MS} AND $start + {DAY_MS - EDGE_MS}
GROUP BY campaign_id
"""
# A notice that was counted in the first hours of a day counts on the day of its bid. Where there is
# no such bid, or one on each day, or a spool has kept the ids, the notice is left out.
_NOTICES: Final = f"""
WITH notices AS MATERIALIZED (
    SELECT kind, verdict, auction_id, imp_id, ms, ms % {DAY_MS} < {CLOSED_MS + EDGE_MS} AS is_early
    FROM rows WHERE kind IN ('win', 'billing') AND verdict IN ('counted', 'late')
),
bids AS (
    SELECT auction_id, imp_id, min(ms) AS first, max(ms) AS last FROM rows
    SEMI JOIN (FROM notices WHERE is_early AND verdict = 'counted') AS early
        USING (auction_id, imp_id)
    WHERE kind = 'bid' AND NOT test
    GROUP BY auction_id, imp_id
)
SELECT kind, count(*)
FROM notices LEFT JOIN bids USING (auction_id, imp_id)
WHERE CASE
    WHEN verdict = 'counted' AND is_early THEN
        first BETWEEN $start + {EDGE_MS} AND $start + {DAY_MS - EDGE_MS}
        AND last BETWEEN $start + {EDGE_MS} AND $start + {DAY_MS - EDGE_MS}
    ELSE ms BETWEEN $start + {EDGE_MS} AND $start + {DAY_MS - EDGE_MS}
END
GROUP BY kind
"""


_SINCE: Final = """
SELECT DISTINCT ssp, auction_id, imp_id FROM rows
WHERE kind = $kind AND ms >= $since AND auction_id IS NOT NULL AND CASE
    WHEN kind = 'bid' THEN NOT test AND campaign_id = $campaign
    ELSE verdict IN ('counted', 'late')
END
ORDER BY ALL LIMIT $most
"""


class LoggedDay(NamedTuple):
    """Counts of bids (by campaign), wins and impressions that certainly belong to a day.

    Rows within seconds of midnight are left out, since they may belong to either day.
    """

    bids: Mapping[str, int]
    wins: int
    imps: int


def count_day(paths: list[Path], day: datetime.date) -> LoggedDay:
    """Count a day's rows in these files. Raises OSError if DuckDB cannot read them."""
    if not paths:
        return LoggedDay({}, 0, 0)
    start = datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp() * 1000
    values = {"start": int(start)}
    with _rows_of(paths) as database:
        bids = dict(database.execute(_BIDS, values).fetchall())
        notices = dict(database.execute(_NOTICES, values).fetchall())
    return LoggedDay(bids, notices.get("win", 0), notices.get("billing", 0))


def fetch_since(
    paths: list[Path], kind: str, campaign: str, since_ms: int, most: int
) -> list[tuple[str | None, str, str]]:
    """Fetch up to `most` rows that count in reports, as (SSP, auction id, impression id).

    `kind` is "bid", "win" or "billing"; `campaign` is used for bids only. `since_ms`: the time of
    the oldest row to fetch (epoch ms). Raises OSError.
    """
    values = {"kind": kind, "campaign": campaign, "since": since_ms, "most": most}
    with _rows_of(paths) as database:
        return database.execute(_SINCE, values).fetchall()


@contextmanager
def _rows_of(paths: list[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    with as_os_error(), tempfile.TemporaryDirectory(prefix="snapbid-audit-") as folder:
        config: Any = {"threads": 1, "memory_limit": MEMORY, "temp_directory": folder}
        with duckdb.connect(config=config) as database:
            names = [glob.escape(str(path)) for path in paths]
            database.execute("SET VARIABLE paths = $names", {"names": names})
            database.execute(_ROWS)
            yield database
