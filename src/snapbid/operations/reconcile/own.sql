-- Makes tables of the auction log's `rows`: bids of the SSP's `family` of descriptors on their days,
-- notices of the `kinds` compared, and gaps.

CREATE TABLE bids AS
SELECT
    row_number() OVER () AS id, auction_id AS auction, imp_id AS imp, epoch_ms(time) AS time_ms,
    price_micros AS price, cost_nanos AS cost, sent_micros AS sent, currency, test, rows.ssp
FROM rows SEMI JOIN family ON rows.descriptor = family.descriptor
    AND day_of(epoch_ms(time)) BETWEEN family.first_day AND family.last_day
WHERE kind = 'bid';

-- A notice replayed from a spool has a key instead of ids; the row of its spooling has both.
-- A signed one has its SSP: others may have used the same ids.
CREATE TABLE notices AS
WITH logged AS NOT MATERIALIZED (
    SELECT
        kind, auction_id AS auction, imp_id AS imp, epoch_ms(time) AS time_ms, verdict, notice_key,
        ssp
    FROM rows
    WHERE kind <> 'bid' AND kind IN (FROM kinds)
), spooled AS (
    SELECT
        notice_key, any_value(auction) AS auction, any_value(imp) AS imp, any_value(ssp) AS ssp
    FROM logged WHERE verdict = 'spooled' GROUP BY notice_key
), named AS (
    FROM logged WHERE auction IS NOT NULL
    UNION ALL
    SELECT logged.* REPLACE (
        spooled.auction AS auction, spooled.imp AS imp, spooled.ssp AS ssp
    )
    FROM logged JOIN spooled USING (notice_key)
    WHERE logged.auction IS NULL
)
SELECT row_number() OVER () AS id, * EXCLUDE (notice_key, ssp)
FROM named
SEMI JOIN (SELECT auction FROM bids UNION ALL SELECT auction FROM claims) USING (auction)
WHERE ssp IS NULL OR ssp IN (SELECT ssp FROM bids);

CREATE TABLE gaps AS
SELECT epoch_ms(since) AS since_ms, epoch_ms(time) AS until_ms, missing
FROM rows WHERE kind = 'gap' ORDER BY time, worker, sequence;
