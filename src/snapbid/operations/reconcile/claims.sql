-- Parses the claims of an SSP's log from the texts in `lines`, null for a missing column.
-- Variables: `kind` and `currency` for lines without one, `scale` from prices to micros of a CPM,
-- `white` (all white space), `day_order` ('dmy', 'mdy', null: not given), `signs` (currencies by sign),
-- `first_day` and `last_day` compared, null if unbounded. Times without a zone are in the session's.

CREATE MACRO day_of(time_ms) AS DATE '1970-01-01' + (time_ms // 86400000)::INTEGER;
-- Strips white space, and the form `="007"`, which keeps Excel from reading a number.
CREATE MACRO unquoted(text) AS if(starts_with(text, '="'), regexp_extract(text, '^="(.*)"$', 1), text);
CREATE MACRO stripped(text) AS unquoted(trim(text, getvariable('white')));
CREATE MACRO number_of(text) AS try_cast(text AS DOUBLE);

-- A single comma or point is the decimal mark. A mark groups thousands if another mark follows, or if
-- there are several groups.
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
-- A currency's sign or code precedes or follows the number.
CREATE MACRO currency_of(text) AS coalesce(getvariable('signs')[upper(text)], upper(text));
CREATE MACRO currency_beside(price) AS currency_of(CASE
    WHEN number_of(price) IS NULL THEN regexp_extract(price, '^[-+]?([A-Za-z]{0,3}\p{Sc}|[A-Za-z]{3})', 1)
        || regexp_extract(price, '\d[\s\p{Zs}]*([A-Za-z]{0,3}\p{Sc}|[A-Za-z]{3})$', 1)
    ELSE ''
END);
CREATE MACRO alone(price) AS CASE WHEN number_of(price) IS NULL THEN regexp_replace(
    price,
    '^([-+]?)(?:[A-Za-z]{0,3}\p{Sc}|[A-Za-z]{3})?[\s\p{Zs}]*([-+]?\d.*?)[\s\p{Zs}]*(?:[A-Za-z]{0,3}\p{Sc}|[A-Za-z]{3})?$',
    '\1\2'
) ELSE price END;
CREATE MACRO price_of(text) AS (
    SELECT CASE WHEN abs(price) < 1e15 THEN round_even(price, 0)::BIGINT END
    FROM (SELECT getvariable('scale') * number_of(ungrouped(text)) AS price)
);
CREATE MACRO has_day_and_month(text) AS regexp_matches(text, '^\s*\d{1,2}[-/]\d{1,2}[-/]\d{4}');
-- The order of day and month in 13/01/2026: as given, or as some line shows.
SET VARIABLE day_order = (
    SELECT coalesce(getvariable('day_order'), CASE
        WHEN bool_or(days[1] > 12) AND bool_or(days[2] > 12) THEN NULL
        WHEN bool_or(days[1] > 12) THEN 'dmy'
        WHEN bool_or(days[2] > 12) THEN 'mdy'
    END)
    FROM (
        SELECT regexp_split_to_array(regexp_extract(days, '^(\d+[-/]\d+)', 1), '[-/]')::INTEGER[] AS days
        FROM (SELECT stripped(unnest([time, day])) AS days FROM lines)
        WHERE has_day_and_month(days)
    )
);
-- Three steps bring a time into the form 2026-01-31 11:59:59 pm: unify weekdays, am and pm and offsets,
-- put the year first, and turn a month's name into its number.
CREATE MACRO of_one_form(text) AS regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    text,
    '^(?i)(mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+', ''),
    ',\s+', ' ', 'g'),
    '(?i)[\s\p{Zs}]*([ap])\.?m\.?$', ' \1m'),
    ' ([-+]\d{2}):?(\d{2})$', '\1:\2'
);
CREATE MACRO year_first(text) AS CASE
    WHEN NOT has_day_and_month(text) THEN regexp_replace(regexp_replace(
        text,
        '^(\d{1,2})[-/ ]([A-Za-z]{3})[a-z]*\.?[-/ ](\d{4})[: ]*', '\3-\2-\1 '),
        '^([A-Za-z]{3})[a-z]*\.? (\d{1,2}) (\d{4})[: ]*', '\3-\1-\2 '
    )
    WHEN getvariable('day_order') = 'dmy'
        THEN regexp_replace(text, '^(\d+)[-/](\d+)[-/](\d{4})', '\3-\2-\1')
    WHEN getvariable('day_order') = 'mdy'
        THEN regexp_replace(text, '^(\d+)[-/](\d+)[-/](\d{4})', '\3-\1-\2')
    ELSE text
END;
CREATE MACRO month_as_number(text) AS CASE
    WHEN regexp_matches(text, '^\d{4}-[A-Za-z]') THEN trim(
        coalesce(try_strptime(split_part(text, ' ', 1), '%Y-%b-%d')::DATE::VARCHAR, '')
        || ' ' || split_part(text, ' ', 2) || ' ' || split_part(text, ' ', 3)
    )
    ELSE text
END;
CREATE MACRO is_rfc3339(text) AS
    regexp_full_match(text, '\d{4}-\d\d-\d\d([T ][\d:.,]+(Z|[-+]\d\d:\d\d)?)?');
-- Parse days and times without separators (20260131, 20260131235959) and with points (31.01.2026).
CREATE MACRO day_alone(text) AS coalesce(
    try_cast(text AS DATE), try_strptime(text, ['%Y%m%d', '%d.%m.%Y'])::DATE
);
CREATE MACRO time_in_zone(text) AS coalesce(
    try_cast(replace(text, ',', '.') AS TIMESTAMPTZ),
    try_strptime(replace(text, 'Z', '+00'), '%Y%m%dT%H%M%S%z'),
    try_strptime(text, [
        '%Y%m%d%H%M%S', '%d.%m.%Y %H:%M:%S', '%d.%m.%Y %H:%M',
        '%Y-%m-%d %I:%M:%S %p', '%Y-%m-%d %I:%M %p', '%Y-%m-%d %I:%M:%S.%f %p'
    ])::TIMESTAMPTZ
);
-- Parses epoch s, ms, µs or ns (told apart by magnitude), RFC 3339, and the forms above; a day alone is
-- a UTC day. No epoch time of this century has 8 or 14 digits.
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

CREATE MACRO is_clock(text) AS contains(left(text, 3), ':');

CREATE VIEW readings AS
WITH texts AS (
    SELECT * REPLACE (
        stripped(auction) AS auction, stripped(imp) AS imp, stripped(time) AS time,
        stripped(day) AS day, stripped(price) AS price, currency_of(stripped(currency)) AS currency,
        stripped(kind) AS kind, stripped(ssp) AS ssp
    )
    FROM lines
), whole AS (
    SELECT
        * REPLACE (if(is_clock(time) AND day <> '', day || ' ' || time, time) AS time),
        is_clock(time) AS is_clock
    FROM texts
), numbers AS (
    SELECT *, number_of(time) AS number, alone(price) AS amount FROM whole
), spelled AS (
    SELECT *, number IS NULL AND NOT is_rfc3339(time) AS is_spelled FROM numbers
), forms AS (
    SELECT *, if(is_spelled, of_one_form(time), time) AS form FROM spelled
), years AS (
    SELECT *, if(is_spelled, year_first(form), form) AS dated FROM forms
), months AS (
    SELECT *, if(is_spelled, month_as_number(dated), dated) AS written FROM years
), times AS (
    SELECT *, time_of(written, number) AS ms FROM months
)
SELECT
    *, CASE WHEN ms BETWEEN 0 AND 253402214400000 THEN ms END AS time_ms,  -- up to the year 9999
    price_of(amount) AS micros, kind_of(kind) AS known_kind
FROM times;

CREATE MACRO quoted(text) AS '''' || left(text, 40) || '''';

CREATE MACRO is_compared(day) AS day IS NULL OR (
    day >= coalesce(getvariable('first_day'), day) AND day <= coalesce(getvariable('last_day'), day)
);

CREATE VIEW claims_of_all_days AS
SELECT
    line, coalesce(known_kind, getvariable('kind')) AS kind,
    kind IS NOT NULL AND known_kind IS NULL AS of_unknown_kind, auction, nullif(imp, '') AS imp,
    time_ms, day_of(time_ms) AS day, micros AS price,
    coalesce(
        nullif(currency, ''), nullif(currency_beside(price), ''), getvariable('currency')
    ) AS currency,
    ssp,
    CASE
        WHEN unreadable THEN 'cannot be read'
        WHEN auction = '' THEN 'has no auction id'
        WHEN of_unknown_kind
            THEN 'is of an unknown kind, ' || quoted(kind)
        WHEN time <> '' AND time_ms IS NULL THEN 'has no time, but ' || quoted(time)
        WHEN price <> '' AND micros IS NULL THEN 'has no price, but ' || quoted(price)
    END AS mistake
FROM readings;

-- Claims of the compared days and of adjacent ones, which may concern notices of the compared days.
CREATE VIEW claims_of_days AS
SELECT *, is_compared(day) AS is_inside FROM claims_of_all_days
WHERE is_inside OR is_compared(day - 1) OR is_compared(day + 1);
