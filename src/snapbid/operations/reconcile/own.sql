-- Makes tables of the auction log's `rows`: bids of the SSP's `family` of descriptors on their days,
-- notices of the `kinds` compared, gaps, and what counts. Variables: `first_seen` and `last_seen`, the days
-- of the SSP's log, null if unbounded, and `per_impression`, whether its prices are of one impression.

-- An amount times the multiplier of an impression: its cost over its price.
CREATE MACRO multiplied(amount, cost, price) AS if(
    cost = price, amount,
    (sign(amount) * ((2 * abs(amount)::HUGEINT * cost + price) // (2 * price)))::HUGEINT
);
CREATE MACRO comparable(amount, cost, price) AS
    if(getvariable('per_impression'), multiplied(amount, cost, price), amount);

-- `price` and `sent` are CPMs, or what a thousand such impressions cost if prices are of one.
CREATE TABLE bids AS
SELECT
    row_number() OVER () AS id, auction_id AS auction, imp_id AS imp, epoch_ms(time) AS time_ms,
    comparable(price_micros, cost_nanos, price_micros) AS price, cost_nanos AS cost,
    comparable(sent_micros, cost_nanos, price_micros) AS sent, currency, test, rows.ssp
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

-- Each bid or notice that counts, with its bid. A duplicate counts if the log lacks the notice that
-- it repeats: that one is in a gap, or its replay was interrupted.
CREATE TABLE counted AS
WITH counting AS (
    FROM notices
    WHERE verdict IN ('counted', 'late', 'duplicate')
    QUALIFY verdict <> 'duplicate' OR row_number() OVER (
        PARTITION BY kind, auction, imp ORDER BY verdict = 'duplicate', time_ms, id
    ) = 1
), either AS (
    SELECT
        counting.kind, counting.id AS notice, verdict, counting.time_ms AS came_ms, bids.*
    FROM counting JOIN bids USING (auction, imp)
    WHERE NOT test
    QUALIFY row_number() OVER (
        PARTITION BY counting.id
        ORDER BY bids.time_ms <= counting.time_ms DESC, bids.time_ms DESC, bids.id
    ) = 1
    UNION ALL
    SELECT 'bid', NULL, '', NULL, * FROM bids
    WHERE NOT test AND 'bid' IN (FROM kinds)
)
SELECT
    *, day_of(time_ms) AS bid_day,
    CASE verdict WHEN 'late' THEN day_of(came_ms) ELSE bid_day END AS day,
    row_number() OVER (PARTITION BY kind, auction, imp ORDER BY came_ms, notice, time_ms, id) AS nth
FROM either;

CREATE MACRO is_seen(day) AS day >= coalesce(getvariable('first_seen'), day)
    AND day <= coalesce(getvariable('last_seen'), day);
CREATE MACRO cost_of(kind, cost) AS sum(if(kind = 'loss', 0, cost));

CREATE VIEW own_days AS
SELECT kind, day, count(*) AS number, cost_of(kind, cost) AS cost
FROM counted WHERE is_seen(day) GROUP BY ALL;
