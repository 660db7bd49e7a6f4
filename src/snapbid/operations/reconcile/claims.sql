-- Parses the claims of an SSP's log from the texts in `lines`, null for a missing column.
-- Variables: `kind` and `currency` of lines without one, `scale` of prices to micros of a CPM,
-- `white` (all white space), `first_day` and `last_day` compared, null for no bound. Times without
-- a zone are in the session's.

CREATE MACRO day_of(time_ms) AS DATE '1970-01-01' + (time_ms // 86400000)::INTEGER;
CREATE MACRO stripped(text) AS trim(text, getvariable('white'));
CREATE MACRO number_of(text) AS try_cast(text AS DOUBLE);

-- One mark that occurs once is the decimal mark, comma or point. Thousands are grouped where another mark
-- follows, or where there are several groups.
CREATE MACRO ungrouped(text) AS CASE
    WHEN number_of(text) IS NOT NULL THEN text
    WHEN regexp_full_match(text, '[-+]?\d{1,3}([,''’\s\p{Zs}]\d{3})+\.\d*')
        OR regexp_full_match(text, '[-+]?\d{1,3}(,\d{3}){2,}')
        OR regexp_full_match(text, '[-+]?\d{1,3}([''’\s\p{Zs}]\d{3})+')
        THEN regexp_replace(text, '[^-+.\d]', '', 'g')
    WHEN regexp_full_match(text, '[-+]?\d{1,3}([.''’\s\p{Zs}]\d{3})+,\d*')
        OR regexp_full_match(text, '[-+]?\d{1,3}(\.\d{3}){2,}')
        THEN replace(regexp_replace(text, '[^-+,\d]', '', 'g'), ',', '.')
    ELSE replace(text, ',', '.')
END;
CREATE MACRO price_of(text) AS (
    SELECT CASE WHEN abs(price) < 1e15 THEN round_even(price, 0)::BIGINT END
    FROM (SELECT getvariable('scale') * number_of(ungrouped(text)) AS price)
);
-- Days without a separator, as in 20260131 and 20260131235959, and with points, as in 31.01.2026.
CREATE MACRO day_alone(text) AS coalesce(
    try_cast(text AS DATE), try_strptime(text, ['%Y%m%d', '%d.%m.%Y'])::DATE
);
CREATE MACRO time_in_zone(text) AS coalesce(
    try_cast(replace(text, ',', '.') AS TIMESTAMPTZ),
    try_strptime(replace(text, 'Z', '+00'), '%Y%m%dT%H%M%S%z'),
    try_strptime(text, ['%Y%m%d%H%M%S', '%d.%m.%Y %H:%M:%S', '%d.%m.%Y %H:%M'])::TIMESTAMPTZ
);
-- Epoch seconds, ms, µs or ns, distinguished by magnitude, RFC 3339, or as above; a day alone is a UTC
-- day. No epoch time of this century has 8 or 14 digits.
CREATE MACRO time_of(text, number) AS round_even(CASE
    WHEN length(text) = 8 AND regexp_full_match(text, '(19|20)\d{6}') THEN epoch_ms(day_alone(text))
    WHEN length(text) = 14 AND regexp_full_match(text, '(19|20)\d{12}')
        THEN epoch_us(time_in_zone(text)) / 1e3
    WHEN number IS NULL AND length(text) <= 10 THEN epoch_ms(day_alone(text))
    WHEN number IS NULL THEN epoch_us(time_in_zone(text)) / 1e3
    WHEN number >= 1e20 OR number <= 0 THEN NULL
    WHEN number >= 1e17 THEN number / 1e6
    WHEN number >= 1e14 THEN number / 1e3
    WHEN number >= 1e11 THEN number
    ELSE number * 1e3
END, 0)::BIGINT;
CREATE MACRO kind_of(text) AS (getvariable('kinds')[lower(text)]);

CREATE VIEW readings AS
WITH texts AS (
    SELECT * REPLACE (
        stripped(auction) AS auction, stripped(imp) AS imp, stripped(time) AS time,
        stripped(price) AS price, stripped(currency) AS currency, stripped(kind) AS kind,
        stripped(ssp) AS ssp
    )
    FROM lines
), times AS (
    SELECT *, time_of(time, number) AS ms
    FROM (SELECT *, number_of(time) AS number FROM texts)
)
SELECT
    *, CASE WHEN ms BETWEEN 0 AND 253402214400000 THEN ms END AS time_ms,  -- up to the year 9999
    price_of(price) AS micros, kind_of(kind) AS known_kind
FROM times;

CREATE MACRO quoted(text) AS '''' || left(text, 40) || '''';

CREATE MACRO is_compared(day) AS day IS NULL OR (
    day >= coalesce(getvariable('first_day'), day) AND day <= coalesce(getvariable('last_day'), day)
);

CREATE VIEW claims_of_all_days AS
SELECT
    line, coalesce(known_kind, getvariable('kind')) AS kind, auction, nullif(imp, '') AS imp,
    time_ms, day_of(time_ms) AS day, micros AS price,
    coalesce(nullif(upper(currency), ''), getvariable('currency')) AS currency, ssp,
    CASE
        WHEN unreadable THEN 'cannot be read'
        WHEN auction = '' THEN 'has no auction id'
        WHEN kind IS NOT NULL AND known_kind IS NULL
            THEN 'is of an unknown kind, ' || quoted(kind)
        WHEN time <> '' AND time_ms IS NULL THEN 'has no time, but ' || quoted(time)
        WHEN price <> '' AND micros IS NULL THEN 'has no price, but ' || quoted(price)
    END AS mistake
FROM readings;

-- The claims of the days compared and of the adjacent days, which may claim what counts on these.
CREATE VIEW claims_of_days AS
SELECT *, is_compared(day) AS is_inside FROM claims_of_all_days
WHERE is_inside OR is_compared(day - 1) OR is_compared(day + 1);
