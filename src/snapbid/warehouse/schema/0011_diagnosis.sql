-- What SSPs are shown of their own traffic (contract 11).

-- What happened beside the counts of the report, by UTC day on which it came. Rows add up, as in
-- bid_daily.
create table anomaly (
    code int primary key,              -- in the ledger's counters (drain/names.py)
    name text not null unique
);
insert into anomaly values
    (11, 'win_late'), (12, 'billing_late'), (14, 'loss_late'),             -- counted on another day
    (21, 'win_duplicate'), (22, 'billing_duplicate'), (24, 'loss_duplicate'),
    (31, 'win_expired'), (32, 'billing_expired'), (34, 'loss_expired'),    -- no longer remembered
    (40, 'bid_reused');                -- the auction and impression had a bid already

create table anomaly_daily (
    day date not null,
    descriptor text not null,
    anomaly text not null,
    times bigint not null default 0,
    counted boolean not null default false
) with (fillfactor = 80);
create index anomaly_daily_key on anomaly_daily (descriptor, day);
create unique index anomaly_daily_counted on anomaly_daily (day, descriptor, anomaly) where counted;

-- Bid requests by what became of them, as the workers count them: evidence, not accounting.
create table request_daily (
    day date not null,
    descriptor text not null,
    source text not null,              -- the data set in Redis: others add to it
    answers bigint not null,           -- of any status
    counts jsonb not null,             -- outcome:…, status:…, broken:…, requests, country, ua, ip …
    examples jsonb not null,           -- broken rule -> where, in one request
    primary key (descriptor, day, source)
) with (fillfactor = 80);
