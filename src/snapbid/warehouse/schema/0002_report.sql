-- Reporting tables, the operator's interface (contract 5): one number per day and key.
--
-- A plain insert of the listed columns always succeeds: rows of the same day and key add up, so a
-- correction is one more row (negative, if need be) that says what it corrects. Readers take sums.
-- Counted traffic keeps to one row per day and key, marked `counted`, which a unique index lets
-- its writer find and raise with `on conflict (…) where counted do update`.

create table bid_daily (
    day date not null,
    descriptor text not null,          -- the full descriptor
    bids bigint not null default 0,    -- 200 answers
    wins bigint not null default 0,
    win_cpm_micros bigint not null default 0,  -- sum of the wins' CPM, micro-USD
    counted boolean not null default false
);
create index bid_daily_key on bid_daily (descriptor, day);
create unique index bid_daily_counted on bid_daily (day, descriptor) where counted;

create table impression_daily (
    day date not null,
    ssp text not null,                 -- the canonical id
    imps bigint not null default 0,
    counted boolean not null default false
);
create index impression_daily_key on impression_daily (ssp, day);
create unique index impression_daily_counted on impression_daily (day, ssp) where counted;

create table loss_daily (
    day date not null,
    descriptor text not null,
    reason int not null,               -- -1: none that could be read
    losses bigint not null default 0,
    counted boolean not null default false
);
create index loss_daily_key on loss_daily (descriptor, day);
create unique index loss_daily_counted on loss_daily (day, descriptor, reason) where counted;

create table campaign_daily (
    day date not null,
    campaign text not null,
    bids bigint not null default 0,    -- each bid, not each answer
    wins bigint not null default 0,
    imps bigint not null default 0,
    spend_micros bigint not null default 0,
    counted boolean not null default false
);
create index campaign_daily_key on campaign_daily (campaign, day);
create unique index campaign_daily_counted on campaign_daily (day, campaign) where counted;
