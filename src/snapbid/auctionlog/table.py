"""The columns of the log, and the conversion of rows to values for these columns.

Workers do not import this module.
"""

from typing import Final

from snapbid.auctionlog.layout import BID, GAP, INVENTORIES, REPLAYED, STRINGS, TEST, LoggedRow
from snapbid.ledger.bids.records import BILLING, LOSS, WIN, NoticeVerdict, bid_digest, family_of

VERSION: Final = "1"
KINDS: Final = {BID: "bid", WIN: "win", BILLING: "billing", LOSS: "loss", GAP: "gap"}
KILLED: Final = "k"
UNWRITTEN: Final = "w"
STOPPED: Final = "m"
VERDICTS: Final = {
    "": None,
    **{verdict.value: verdict.name.lower() for verdict in NoticeVerdict},
    KILLED: "killed",
    UNWRITTEN: "unwritten",
    STOPPED: "machine_stopped",
}
UNKNOWN: Final = -1  # an unknown number of missing rows

LOGGED: Final = """
CREATE TABLE logged (
    kind VARCHAR, verdict VARCHAR, test BOOLEAN, reason SMALLINT, sequence BIGINT, time_ms BIGINT,
    price BIGINT, cost BIGINT, sent BIGINT, inventory VARCHAR, floor DOUBLE, w INTEGER, h INTEGER,
    device_type INTEGER, notice_key BLOB, descriptor VARCHAR, ssp VARCHAR,
    auction_id VARCHAR, imp_id VARCHAR, campaign_id VARCHAR, creative_id VARCHAR, deal_id VARCHAR,
    currency VARCHAR, publication VARCHAR, country VARCHAR, os VARCHAR, floor_currency VARCHAR
)
"""
# SSPs also send addresses of pages, with their queries, and put persons' data where a country or a
# system should be. Of an address the host is logged, or an app's id in its store.
_HOST: Final = r"^\s*(?:[A-Za-z][A-Za-z0-9+.-]*://)?([^/?#@,;:\s]+)(?::[0-9]+)?(?:[/?#,;\s]|$)"
_APP: Final = r"(?:[?&]id=|/id)([A-Za-z0-9_.]+)"
COLUMNS: Final = f"""
SELECT
    make_timestamptz(time_ms * 1000) AS time, kind, verdict, nullif(descriptor, '') AS descriptor,
    nullif(ssp, '') AS ssp, auction_id, imp_id, nullif(campaign_id, '') AS campaign_id,
    nullif(creative_id, '') AS creative_id, nullif(deal_id, '') AS deal_id,
    CASE kind WHEN 'bid' THEN price END AS price_micros,
    CASE kind WHEN 'bid' THEN cost END AS cost_nanos,
    CASE kind WHEN 'bid' THEN sent END AS sent_micros,
    nullif(currency, '') AS currency, CASE kind WHEN 'loss' THEN reason END AS loss_reason,
    CASE kind WHEN 'bid' THEN test END AS test, inventory,
    nullif(regexp_extract(publication, if(
        inventory = 'app' AND contains(publication, '/'), '{_APP}', '{_HOST}'
    ), 1), '') AS publication,
    nullif(regexp_extract(country, '^\\s*([A-Za-z]{{2,3}})\\s*$', 1), '') AS country,
    nullif(device_type, 0)::SMALLINT AS device_type,
    CASE WHEN NOT contains(os, '@') THEN nullif(os, '') END AS os,
    nullif(w, 0) AS w, nullif(h, 0) AS h,
    CASE WHEN floor_currency <> '' THEN floor END AS floor,
    nullif(floor_currency, '') AS floor_currency,
    CASE kind WHEN 'bid' THEN (time_ms // 3_600_000 % 24)::TINYINT END AS hour, notice_key,
    CASE kind WHEN 'gap' THEN nullif(cost, {UNKNOWN}) END AS missing,
    CASE kind WHEN 'gap' THEN make_timestamptz(price * 1000) END AS since,
    $machine AS machine, $worker AS worker, sequence
FROM logged
"""
_NO_STRINGS: Final = (None,) * STRINGS


def values_of(row: LoggedRow) -> tuple[object, ...]:
    """Convert a row to values for the columns of LOGGED."""
    kind, letter, flags, reason, sequence, time_ms, price, cost, sent, strings, *_ = row
    texts: list[str | None] = [str(text, "utf-8", "replace") for text in strings]
    texts += _NO_STRINGS[len(texts) :]
    key = None
    if flags & REPLAYED:
        texts, key = [*_NO_STRINGS], strings[2]
    elif letter == NoticeVerdict.SPOOLED:
        ssp, auction_id, imp_id = strings[1:4]  # the SSP of a signed notice
        key = bid_digest((family_of(ssp.decode()) if ssp else b"") + auction_id, imp_id)
    test = bool(flags & TEST)
    return (
        KINDS[kind], VERDICTS[letter], test, reason, sequence, time_ms, price, cost, sent,
        INVENTORIES[row.inventory], row.floor, row.w, row.h, row.device_type, key, *texts,
    )  # fmt: skip
