-- Finds what agrees and what is in dispute, from `claims` (claims.sql), `bids`, `notices` and `counted`
-- (own.sql), and `rates`: USD per unit of a currency on a day. Variables: `tolerance` (micros) and
-- `descriptors`.

-- The difference between a claim's price and the bid's, in micros of the bid's currency or of USD
-- (null without a rate), and the difference allowed.
CREATE MACRO more_of(claim, own, usd) AS CASE
    WHEN claim.currency = own.currency THEN claim.price - own.sent ELSE claim.price * usd - own.price
END;
-- Half a unit of a currency without a smaller one (ISO 4217), whose prices may have been rounded.
CREATE MACRO half_of(currency) AS if(currency IN (
    'BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX', 'UYI', 'VND', 'VUV',
    'XAF', 'XOF', 'XPF'
), 500000, 0);
CREATE MACRO allowed_of(claim, own, usd) AS CASE
    WHEN claim.currency = own.currency
        THEN greatest(getvariable('tolerance'), half_of(claim.currency))
    ELSE greatest(getvariable('tolerance'), own.price // 100, half_of(claim.currency) * usd) + 0.001
END;
CREATE MACRO price_cause(claim, own, usd) AS CASE
    WHEN claim.price IS NULL OR claim.kind = 'loss' THEN NULL
    WHEN more_of(claim, own, usd) IS NULL THEN 'unknown_currency'
    WHEN abs(more_of(claim, own, usd)) > allowed_of(claim, own, usd) THEN 'price_differs'
END;
-- What a claim says that our cost is, in nano-USD at the rate of our bid.
CREATE MACRO claimed_of(claim, own, usd) AS own.cost * CASE
    WHEN claim.currency = own.currency THEN claim.price / nullif(own.sent, 0)
    ELSE claim.price * usd / nullif(own.price, 0)
END;

-- Gives each claim without an impression one of its auction that no line names: first a counted one
-- that agrees with the claim, then any other counted one, then any other.
CREATE TABLE assigned AS
WITH free AS (
    FROM claims WHERE imp IS NULL
), imps AS (
    SELECT auction, imp, min(time_ms) AS since FROM bids SEMI JOIN free USING (auction) GROUP BY ALL
), open AS (
    SELECT kinds.kind, imps.*
    FROM imps JOIN (SELECT DISTINCT kind, auction FROM free) AS kinds USING (auction)
    ANTI JOIN claims AS named
        ON named.kind = kinds.kind AND named.auction = imps.auction AND named.imp = imps.imp
), fitting AS (
    SELECT free.line, list(counted.imp ORDER BY open.since) AS imps
    FROM free JOIN open USING (kind, auction)
    JOIN counted ON counted.kind = open.kind AND counted.auction = open.auction
        AND counted.imp = open.imp AND nth = 1
    LEFT JOIN rates ON rates.currency = free.currency AND rates.day = bid_day
    WHERE coalesce(free.day = counted.day, true) AND price_cause(free, counted, usd) IS NULL
    GROUP BY free.line
), by_auction AS (
    SELECT
        kind, auction, list(line ORDER BY line) AS lines,
        list_reduce(
            list(coalesce(fitting.imps, []) ORDER BY line),
            lambda taken, imps: list_append(
                taken, list_filter(imps, lambda imp: NOT list_contains(taken, imp))[1]
            ),
            []::VARCHAR[]
        ) AS taken
    FROM free LEFT JOIN fitting USING (line)
    GROUP BY kind, auction
), best AS (
    SELECT kind, auction, unnest(lines) AS line, unnest(taken) AS imp FROM by_auction
), left_over AS (
    SELECT *, row_number() OVER (PARTITION BY kind, auction ORDER BY line) AS nth
    FROM best WHERE imp IS NULL
), others AS (
    SELECT
        open.kind, open.auction, open.imp,
        row_number() OVER (
            PARTITION BY open.kind, open.auction ORDER BY counted.id IS NULL, open.since
        ) AS nth
    FROM open ANTI JOIN best USING (kind, auction, imp)
    LEFT JOIN counted ON counted.kind = open.kind AND counted.auction = open.auction
        AND counted.imp = open.imp AND counted.nth = 1
), given AS (
    SELECT line, coalesce(best.imp, others.imp, imps.imp, '') AS imp
    FROM best LEFT JOIN left_over USING (line)
    LEFT JOIN others ON others.kind = left_over.kind AND others.auction = left_over.auction
        AND others.nth = left_over.nth
    LEFT JOIN (SELECT auction, arg_min(imp, since) AS imp FROM imps GROUP BY auction) AS imps
        ON imps.auction = best.auction
), complete AS (
    SELECT claims.* REPLACE (coalesce(claims.imp, given.imp) AS imp)
    FROM claims LEFT JOIN given USING (line)
)
SELECT
    *, row_number() OVER (PARTITION BY kind, auction, imp ORDER BY of_unknown_kind, line) AS nth,
    count(*) FILTER (NOT of_unknown_kind) OVER (PARTITION BY kind, auction, imp) AS lines
FROM complete;

-- Each claim with its counted bid or notice, if the day of either is compared.
CREATE TABLE judged AS
SELECT
    claim.kind, claim.auction, claim.imp, claim.line, claim.nth, claim.lines, claim.ssp,
    claim.mistake, claim.time_ms AS their_ms, claim.day AS their_day, claim.price AS their_price,
    CASE WHEN claim.price IS NULL THEN '' ELSE claim.currency END AS their_currency,
    own.time_ms AS our_ms, own.day AS our_day, own.sent AS our_price, own.currency AS our_currency,
    own.verdict, more_of(claim, own, usd) AS more, own.cost AS our_cost,
    claimed_of(claim, own, usd) AS claimed,
    CASE
        WHEN claim.mistake IS NOT NULL THEN 'unreadable'
        WHEN NOT list_contains(getvariable('descriptors'), claim.ssp) THEN 'unknown_ssp'
        WHEN own.id IS NULL THEN 'uncounted'
    END AS cause,
    cause IS NULL AND coalesce(claim.day <> own.day, false) AS other_day,
    CASE WHEN cause IS NULL THEN price_cause(claim, own, usd) END AS price_cause
FROM assigned AS claim LEFT JOIN counted AS own USING (kind, auction, imp, nth)
LEFT JOIN rates ON rates.currency = claim.currency AND rates.day = own.bid_day
WHERE is_compared(claim.day) OR (own.id IS NOT NULL AND is_compared(own.day));

-- What the CPMs of claims lack of what they claim, where our bid's impression counts several times.
CREATE VIEW multiplied_days AS
WITH several AS (
    SELECT auction, imp, arg_max({'cost': cost, 'price': price}, time_ms) AS newest
    FROM bids WHERE cost <> price GROUP BY auction, imp
)
SELECT
    kind, claim.day, claim.currency,
    sum(multiplied(
        claim.price, coalesce(own.cost, newest.cost), coalesce(own.price, newest.price)
    ) - claim.price)::HUGEINT AS more
FROM assigned AS claim JOIN several USING (auction, imp)
LEFT JOIN counted AS own USING (kind, auction, imp, nth)
WHERE is_inside AND NOT of_unknown_kind AND kind <> 'loss' AND claim.price IS NOT NULL
GROUP BY ALL;

-- Bids or notices that count on the days of their log, but are missing from it.
CREATE TABLE unclaimed AS
FROM counted ANTI JOIN assigned USING (kind, auction, imp) WHERE is_seen(day);

CREATE MACRO bid_of(time_ms, sent, currency, test, verdict) AS {
    'time_ms': time_ms, 'sent': sent, 'currency': currency, 'test': test, 'verdict': verdict
};

-- Claims without a counted bid or notice, with everything known about their impressions.
CREATE VIEW uncounted AS
WITH open AS (
    FROM judged WHERE cause = 'uncounted'
), ours AS (
    SELECT auction, imp, arg_max(bid_of(time_ms, sent, currency, test, ''), time_ms) AS newest
    FROM bids SEMI JOIN open USING (auction, imp) GROUP BY auction, imp
), tally AS (
    SELECT
        kind, auction, imp, count(*) AS times,
        arg_max(bid_of(time_ms, sent, currency, test, verdict), nth) AS last
    FROM counted SEMI JOIN open USING (kind, auction, imp) GROUP BY kind, auction, imp
), verdicts AS (
    SELECT
        kind, auction, imp, list_sort(list(DISTINCT verdict)) AS verdicts,
        arg_min(time_ms, time_ms) FILTER (verdict = 'unknown') AS unknown_ms
    FROM notices SEMI JOIN open USING (kind, auction, imp) GROUP BY kind, auction, imp
)
SELECT
    open.* EXCLUDE cause, coalesce(last, newest) AS bid, times, unknown_ms, verdicts,
    CASE
        WHEN times IS NOT NULL OR nth > 1 THEN 'duplicate'
        WHEN newest IS NULL THEN 'not_won_here'
        WHEN newest.test THEN 'test'
        WHEN unknown_ms IS NOT NULL THEN 'late'
        WHEN list_contains(verdicts, 'spooled') THEN 'pending'
        ELSE 'notice_missing'
    END AS cause
FROM open LEFT JOIN ours USING (auction, imp) LEFT JOIN tally USING (kind, auction, imp)
LEFT JOIN verdicts USING (kind, auction, imp);

-- The columns of compare.Dispute, and whether a gap in our log may explain the dispute.
CREATE VIEW disputes AS
SELECT
    cause, kind, auction, imp, line, their_ms, their_price, their_currency,
    NULL AS our_ms, NULL AS our_price, '' AS our_currency, '' AS verdict,
    CASE cause WHEN 'unreadable' THEN 'the line ' || mistake ELSE ssp END AS detail,
    false AS may_be_in_gap
FROM judged WHERE cause IN ('unreadable', 'unknown_ssp')
UNION ALL
SELECT
    'other_day', kind, auction, imp, line, their_ms, their_price, their_currency,
    our_ms, our_price, our_currency, verdict, format('{} there, {} here', their_day, our_day), false
FROM judged WHERE other_day
UNION ALL
SELECT
    price_cause, kind, auction, imp, line, their_ms, their_price, their_currency,
    our_ms, our_price, our_currency, verdict,
    CASE price_cause
        WHEN 'price_differs' THEN format('by {:+.6g} for 1,000', more / 1e6) ELSE their_currency
    END,
    false
FROM judged WHERE price_cause IS NOT NULL
UNION ALL
SELECT
    cause, kind, auction, imp, line, their_ms, their_price, their_currency,
    bid.time_ms, bid.sent, coalesce(bid.currency, ''),
    CASE cause
        WHEN 'duplicate' THEN if(times IS NULL, '', bid.verdict)
        WHEN 'not_won_here' THEN coalesce(array_to_string(verdicts, ' '), '')
        WHEN 'late' THEN 'unknown'
        WHEN 'pending' THEN 'spooled'
        ELSE ''
    END,
    CASE
        WHEN times = 1 THEN format('{} lines, counted once', lines)
        WHEN times > 1 THEN format('{} lines, counted {} times', lines, times)
        WHEN nth > 1 THEN 'repeats a line before'
        WHEN cause = 'late' THEN format('{:.0f} s after the bid', (unknown_ms - bid.time_ms) / 1e3)
        ELSE ''
    END,
    cause = 'notice_missing' AND verdicts IS NULL
        OR cause = 'not_won_here' AND coalesce(list_has_any(verdicts, ['counted', 'late']), true)
FROM uncounted
UNION ALL
SELECT
    'not_in_their_log', kind, auction, imp, NULL, NULL, NULL, '', time_ms, sent, currency, verdict,
    format('counted on {}', day), false
FROM unclaimed
ORDER BY line NULLS LAST, kind, auction, imp;

CREATE VIEW agreed_days AS
SELECT
    kind, their_day AS day, count(*) AS number,
    coalesce(sum(claimed) FILTER (kind <> 'loss'), 0)::HUGEINT AS claimed,
    coalesce(sum(our_cost) FILTER (kind <> 'loss' AND claimed IS NOT NULL), 0)::HUGEINT AS cost
FROM judged WHERE cause IS NULL AND price_cause IS NULL AND NOT other_day GROUP BY ALL;

-- What counts beyond the days of their log, but is in it.
CREATE VIEW other_days AS
SELECT kind, day, count(*) AS number, cost_of(kind, cost) AS cost
FROM counted SEMI JOIN assigned USING (kind, auction, imp)
WHERE is_compared(day) AND NOT is_seen(day)
GROUP BY ALL;
