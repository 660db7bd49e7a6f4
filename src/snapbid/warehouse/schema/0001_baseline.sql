-- The warehouse of release 0.1.0. Later changes are separate files with higher numbers.
--
--   1 the registry of SSPs               6 server events
--   2 campaigns                          7 forgotten persons
--   3 numbers of SSPs and campaigns      8 audiences
--   4 report tables                      9 the audit trail
--   5 the ledger and the drain          10 the catalog's base
--                                       11 clicks and conversions
--
-- Operators read these tables in plain SQL, and write those of sections 1 and 2, products, keys and
-- rates. Every change that workers need is announced on the channel snapbid_catalog when its
-- transaction commits. Triggers of a table fire in the order of their names, hence their digits.


-- The warehouse's id, which its backups share.

create table warehouse_identity (
    id uuid not null default gen_random_uuid(),
    single boolean primary key default true check (single)
);
insert into warehouse_identity default values;

create function catalog_announce() returns trigger language plpgsql as $$
begin
    perform pg_notify('snapbid_catalog', '');
    return null;
end $$;

-- Writers of SSPs and campaigns take turns (by a lock until commit), so that revisions become visible
-- in the order of their numbers: a reader that has seen revision n has missed none below n.

create function catalog_lock() returns void language sql as $$
    select pg_advisory_xact_lock(7165064744911531884)
$$;

create function catalog_turn() returns trigger language plpgsql as $$
begin
    perform catalog_lock();
    return null;
end $$;

create function utc_today() returns date stable language sql as $$
    select (now() at time zone 'UTC')::date
$$;

-- A day is open until 02:00 UTC of the next.
create function first_open_day() returns date stable language sql as $$
    select (now() at time zone 'UTC' - interval '2 hours')::date
$$;


-- 1 The registry of SSPs ------------------------------------------------------------------------

-- Each descriptor counts for a canonical id, which must be a registered descriptor, too, and its own
-- canonical id.

create table ssp (
    descriptor text primary key
        constraint ssp_descriptor_form check (descriptor ~ '^[A-Za-z0-9._~-]{1,128}$'),
    canonical text not null references ssp (descriptor),
    allow cidr[] not null default '{}'     -- networks that may send as this SSP; empty: any
        constraint ssp_allow_is_named check (array_position(allow, null) is null),
    qps int                                -- requests a second, over all workers; null: any
        constraint ssp_qps_is_in_range check (qps between 1 and 1000000),
    signed boolean                         -- whether its notification URLs are signed; null and
                                           -- false: only if SNAPBID_SIGNED_NOTICES signs all
);

create function ssp_check() returns trigger language plpgsql as $$
declare
    wrong record;
begin
    select s.descriptor, s.canonical into wrong
    from ssp s join ssp c on c.descriptor = s.canonical
    where c.canonical <> c.descriptor
    limit 1;
    if found then
        raise exception using
            errcode = 'foreign_key_violation',
            constraint = 'ssp_canonical_is_its_own',
            message = format('%s cannot be the canonical id of %s: it is a variant itself',
                             wrong.canonical, wrong.descriptor);
    end if;
    return null;
end $$;

create trigger ssp_1_turn before insert or update or delete or truncate on ssp
    for each statement execute function catalog_turn();
create trigger ssp_2_check after insert or update on ssp
    for each statement execute function ssp_check();
create trigger ssp_3_announce after insert or update or delete or truncate on ssp
    for each statement execute function catalog_announce();

-- The family for which an SSP is reported, by day (document 1: closed days do not change).
--
-- A day is reported for the descriptor's canonical id of that day. A change in the registry applies
-- from the next day on; only ssp_regroup changes open days, and nothing changes closed ones. A removed
-- SSP keeps its days.

create table ssp_family (
    descriptor text not null,
    canonical text not null,
    since date not null,                   -- '-infinity' in the first row
    until date not null,                   -- inclusive; 'infinity' in the last row
    primary key (descriptor, since),
    constraint ssp_family_is_a_span check (since <= until)
);
create index ssp_family_canonical on ssp_family (canonical);

-- Assigns a descriptor's days from first_day on to a family, and moves their impressions there.
create function ssp_family_set(name text, family text, first_day date) returns void
language plpgsql as $$
begin
    if exists (select from ssp_family where descriptor = name) then
        -- Keep drains from absorbing meanwhile: they would count for the former family.
        lock table drain_absorbed in share row exclusive mode;
        with counted as (
            select a.day, f.canonical, sum(a.value) as imps
            from drain_absorbed a
            join drain_source o using (source)
            join ssp_number n using (number)
            join ssp_family f on f.descriptor = n.descriptor and a.day between f.since and f.until
            where n.descriptor = name and a.kind = 'i' and a.day >= first_day
                and (o.retired_on is null or a.day > o.retired_on) and f.canonical <> family
            group by a.day, f.canonical
        ),
        taken as (
            update impression_daily t set imps = t.imps - c.imps
            from counted c where t.counted and t.day = c.day and t.ssp = c.canonical
        )
        insert into impression_daily as t (day, ssp, imps, counted)
        select c.day, family, sum(c.imps), true from counted c group by c.day
        on conflict (day, ssp) where counted do update set imps = t.imps + excluded.imps;
    end if;
    delete from ssp_family where descriptor = name and since >= first_day;
    update ssp_family set until = 'infinity'
    where descriptor = name and until >= first_day - 1 and canonical = family;
    if not found then
        update ssp_family set until = first_day - 1 where descriptor = name and until >= first_day;
        insert into ssp_family values (name, family, first_day, 'infinity');
    end if;
end $$;

create function ssp_family_give() returns trigger language plpgsql as $$
begin
    perform ssp_family_set(s.descriptor, s.canonical, case
        when f.descriptor is null then '-infinity'
        when n.removed_on is null then utc_today() + 1
        else greatest(first_open_day(), n.removed_on + 1)
    end)
    from new_ssp s
    join ssp_number n using (descriptor)
    left join ssp_family f on f.descriptor = s.descriptor and f.until = 'infinity'
    where f.canonical is distinct from s.canonical;
    update ssp_number n set removed_on = null
    from new_ssp s where s.descriptor = n.descriptor and n.removed_on is not null;
    return null;
end $$;

create function ssp_family_end() returns trigger language plpgsql as $$
begin
    update ssp_number n set removed_on = utc_today()
    where n.removed_on is null and not exists (select from ssp s where s.descriptor = n.descriptor);
    return null;
end $$;

create trigger ssp_4_family_inserted after insert on ssp
    referencing new table as new_ssp
    for each statement execute function ssp_family_give();
create trigger ssp_4_family_updated after update on ssp
    referencing new table as new_ssp
    for each statement execute function ssp_family_give();
create trigger ssp_4_family_ended after update or delete or truncate on ssp
    for each statement execute function ssp_family_end();

-- Assigns a descriptor's open days to its family in the registry; returns the first open day.
create function ssp_regroup(name text) returns date language plpgsql as $$
declare
    family text;
    before jsonb;
    opened date := first_open_day();
begin
    perform catalog_lock();
    select canonical into strict family from ssp where descriptor = name;
    select jsonb_agg(distinct f.canonical) into before from ssp_family f
    where f.descriptor = name and f.until >= opened and f.since <= utc_today()
        and f.canonical <> family;
    perform ssp_family_set(name, family, opened);
    if before is not null then
        insert into audit (kind, object, action, detail) values ('ssp', name, 'regrouped',
            jsonb_build_object('canonical', jsonb_build_array(before, family),
                               'since', jsonb_build_array(null, opened)));
    end if;
    return opened;
end $$;


-- 2 Campaigns -----------------------------------------------------------------------------------

-- The document as imported. Its "status" and the column are kept equal, whichever is written (the
-- column wins if both change).

create sequence campaign_revision;

create table campaign (
    id text primary key,
    document jsonb not null
        constraint campaign_document_is_object check (jsonb_typeof(document) = 'object'),
    status text not null
        constraint campaign_status check (status in ('active', 'paused')),
    -- Even pacing spreads the first day's budget from this time on. Replacing a campaign keeps it.
    created_at timestamptz not null default now(),
    updated_at timestamptz not null,
    revision bigint not null unique,
    -- The document's normalised form, made by the import under this version of the rules. If it is
    -- null, or of another version, the document is checked when it is loaded.
    normalised bytea,
    rules int,
    -- How long a click counts; null: 30 days.
    attribution_days int generated always as (
        case when document ->> 'attribution_days' ~ '^[1-9][0-9]{0,2}$'
            then (document ->> 'attribution_days')::int end) stored,
    constraint campaign_id_is_of_document check (document ->> 'id' is not distinct from id),
    constraint campaign_rules_of_normalised check ((normalised is null) = (rules is null))
) with (toast_tuple_target = 8160);        -- by default PostgreSQL compresses rows over 2 kB

create index campaign_attribution_days on campaign (attribution_days)
    where attribution_days is not null;

-- Deleted campaigns, for readers that ask what has changed since a revision, and how their clicks
-- still count.
create table campaign_gone (
    id text primary key,
    revision bigint not null unique,
    attribution_days int,
    product text
);

create function campaign_stamp() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        new.status := coalesce(new.status, new.document ->> 'status', 'active');
    elsif new.status is not distinct from old.status
        and (new.document ->> 'status') is distinct from (old.document ->> 'status') then
        new.status := coalesce(new.document ->> 'status', 'active');
    end if;
    new.document := new.document || jsonb_build_object('status', new.status);
    if tg_op = 'UPDATE' then
        if (new.normalised, new.rules) is not distinct from (old.normalised, old.rules) then
            -- The column holds the effective status, so a pause keeps the normalised form.
            if new.document - 'status' <> old.document - 'status' then
                new.normalised := null;
                new.rules := null;
            end if;
        elsif (new.id, new.document, new.status) = (old.id, old.document, old.status) then
            return new;  -- the campaign is unchanged, so no reader needs it again
        end if;
    end if;
    new.updated_at := now();
    new.revision := nextval('campaign_revision');
    return new;
end $$;

create function campaign_keep_deleted() returns trigger language plpgsql as $$
begin
    insert into campaign_gone (id, revision, attribution_days, product)
    select id, nextval('campaign_revision'), attribution_days, document ->> 'product'
    from old_campaign o
    where not exists (select from campaign c where c.id = o.id)
    on conflict (id) do update set revision = excluded.revision,
        attribution_days = excluded.attribution_days, product = excluded.product;
    return null;
end $$;

create function campaign_keep_truncated() returns trigger language plpgsql as $$
begin
    insert into campaign_gone (id, revision, attribution_days, product)
    select id, nextval('campaign_revision'), attribution_days, document ->> 'product' from campaign
    on conflict (id) do update set revision = excluded.revision,
        attribution_days = excluded.attribution_days, product = excluded.product;
    return null;
end $$;

create trigger campaign_1_turn before insert or update or delete or truncate on campaign
    for each statement execute function catalog_turn();
create trigger campaign_2_stamp before insert or update on campaign
    for each row execute function campaign_stamp();
create trigger campaign_3_keep_deleted after delete on campaign
    referencing old table as old_campaign
    for each statement execute function campaign_keep_deleted();
create trigger campaign_3_keep_renamed after update on campaign
    referencing old table as old_campaign
    for each statement execute function campaign_keep_deleted();
create trigger campaign_3_keep_truncated before truncate on campaign
    for each statement execute function campaign_keep_truncated();
create trigger campaign_4_announce after insert or update or delete or truncate on campaign
    for each statement execute function catalog_announce();

-- Creatives suspended at an SSP that keeps rejecting their content (contract 11).

-- The drain's counts of such losses, and of bids in the same time, until they are added up in
-- creative_suspension.
create table creative_rejection (
    ssp text not null,                     -- the canonical id
    campaign text not null,
    mark int not null,                     -- the creative's mark in the ledger's records (campaigns/suspensions.py)
    reason int,                            -- OpenRTB 2.5, 5.25: 200 to 213; null in rows of bids
    losses bigint not null,
    bids bigint not null default 0
);

-- The creatives that an SSP has rejected lately. One with `until` in the future is suspended: it is
-- not offered to this SSP. Deleting the row ends the suspension.
create table creative_suspension (
    ssp text not null,                     -- the canonical id
    campaign text not null,
    creative text not null,
    reason int not null,                   -- of the last counted loss
    losses bigint not null,
    bids bigint not null default 0,
    counted_at timestamptz not null default now(),
    since timestamptz,
    until timestamptz,
    primary key (ssp, campaign, creative),
    constraint creative_suspension_is_a_span check ((since is null) = (until is null))
);

create trigger creative_suspension_announce after insert or update or delete or truncate on creative_suspension
    for each statement execute function catalog_announce();

-- Rules that tell an SSP which of its traffic can be bid on at all, built from the campaigns.
create table demand_signal (
    ssp text primary key,                  -- the canonical id
    etag text not null,
    rules bytea not null,                  -- JSON
    made_at timestamptz not null default now()
);


-- 3 Numbers of SSPs and campaigns ---------------------------------------------------------------

-- To be small, the ledger's records in Redis name descriptors and campaigns by number. A number is
-- assigned at the first insert, even by plain SQL, and kept for ever: a descriptor or campaign that is
-- removed and added again has its old number, and late counts still find their name.
--
-- Numbers are derived from names, so a number means the same campaign or SSP in all states of a
-- warehouse: after a restore from a backup, no number goes to another campaign while the ledger still
-- uses it for the first.

create table ssp_number (
    number int primary key,
    descriptor text not null unique,
    canonical text not null,               -- as registered now, or last
    removed_on date                        -- null while the descriptor is registered
);

create table campaign_number (
    number int primary key,
    id text not null unique
);

-- From 1 to 2^31 - 1. If a number is taken, the next attempt gives another: 1 in 20,000 at 100,000 names.
create function number_of(name text, attempt int) returns int stable language sql as $$
    select (('x' || left(encode(sha256(convert_to(
        concat_ws(' ', id, attempt, name), 'UTF8')), 'hex'), 8))::bit(32)::bigint % 2147483647 + 1)::int
    from warehouse_identity
$$;

-- Writers of ssp and campaign take turns, so nobody assigns a number between check and insert.

create function ssp_number_give() returns trigger language plpgsql as $$
declare attempt int := 0;
begin
    update ssp_number n set canonical = s.canonical
    from new_ssp s where s.descriptor = n.descriptor and s.canonical <> n.canonical;
    while exists (
        select from new_ssp s
        where not exists (select from ssp_number n where n.descriptor = s.descriptor)
    ) loop
        insert into ssp_number (number, descriptor, canonical)
        select number_of(s.descriptor, attempt), s.descriptor, s.canonical from new_ssp s
        where not exists (select from ssp_number n where n.descriptor = s.descriptor)
        order by s.descriptor
        on conflict (number) do nothing;
        attempt := attempt + 1;
    end loop;
    return null;
end $$;

create function campaign_number_give() returns trigger language plpgsql as $$
declare attempt int := 0;
begin
    while exists (
        select from new_campaign c
        where not exists (select from campaign_number n where n.id = c.id)
    ) loop
        insert into campaign_number (number, id)
        select number_of(c.id, attempt), c.id from new_campaign c
        where not exists (select from campaign_number n where n.id = c.id)
        order by c.id
        on conflict (number) do nothing;
        attempt := attempt + 1;
    end loop;
    return null;
end $$;

create trigger ssp_3_number_inserted after insert on ssp
    referencing new table as new_ssp
    for each statement execute function ssp_number_give();
create trigger ssp_3_number_updated after update on ssp
    referencing new table as new_ssp
    for each statement execute function ssp_number_give();
create trigger campaign_3_number_inserted after insert on campaign
    referencing new table as new_campaign
    for each statement execute function campaign_number_give();
create trigger campaign_3_number_updated after update on campaign
    referencing new table as new_campaign
    for each statement execute function campaign_number_give();


-- Click ids name a creative by a digest (campaigns/click_id.py), whose meaning never changes either.
create table click_creative (
    campaign text not null,
    digest bytea not null,
    creative text not null,
    primary key (campaign, digest)
);

create function click_creative_give() returns trigger language plpgsql as $$
begin
    insert into click_creative (campaign, digest, creative)
    select distinct on (c.id, d.digest) c.id, d.digest, i.creative
    from new_campaign c
    cross join jsonb_path_query(c.document, 'strict $.creatives[*]', silent => true) as e
    cross join lateral (select e ->> 'id' as creative) as i
    cross join lateral (select substr(sha256(convert_to(i.creative, 'UTF8')), 1, 4) as digest) as d
    where position('{{click_id}}' in e::text) > 0 and octet_length(i.creative) <= 1024
    order by c.id, d.digest, i.creative
    on conflict do nothing;
    return null;
end $$;

create trigger campaign_3_creative_inserted after insert on campaign
    referencing new table as new_campaign
    for each statement execute function click_creative_give();
create trigger campaign_3_creative_updated after update on campaign
    referencing new table as new_campaign
    for each statement execute function click_creative_give();


-- 4 Report tables -------------------------------------------------------------------------------

-- Figures per day and key (contract 5). A plain insert of the listed columns always succeeds: rows of
-- the same day and key add up, so a correction is one more row, negative if need be. Readers take
-- sums. Counted traffic has a single row per day and key, marked `counted`, which the drain finds by a
-- unique index and raises with `on conflict (…) where counted`.

create table bid_daily (
    day date not null,
    descriptor text not null,              -- the full descriptor
    bids bigint not null default 0,        -- answers with status 200
    wins bigint not null default 0,
    win_cpm_micros bigint not null default 0,  -- sum of the wins' CPM, micro-USD
    counted boolean not null default false
) with (fillfactor = 80);
create index bid_daily_key on bid_daily (descriptor, day);
create unique index bid_daily_counted on bid_daily (day, descriptor) where counted;

create table impression_daily (
    day date not null,
    ssp text not null,                     -- the canonical id
    imps bigint not null default 0,
    counted boolean not null default false
) with (fillfactor = 80);
create index impression_daily_key on impression_daily (ssp, day);
create unique index impression_daily_counted on impression_daily (day, ssp) where counted;

create table loss_daily (
    day date not null,
    descriptor text not null,
    reason int not null,                   -- -1: missing or unreadable
    losses bigint not null default 0,
    counted boolean not null default false
) with (fillfactor = 80);
create index loss_daily_key on loss_daily (descriptor, day);
create unique index loss_daily_counted on loss_daily (day, descriptor, reason) where counted;

create table campaign_daily (
    day date not null,
    campaign text not null,
    bids bigint not null default 0,        -- bids, of which an answer may have several
    wins bigint not null default 0,
    imps bigint not null default 0,
    spend_micros bigint not null default 0,
    win_cpm_micros bigint not null default 0,  -- the exact sum; spend_micros is rounded from it
    counted boolean not null default false
) with (fillfactor = 80);
create index campaign_daily_key on campaign_daily (campaign, day);
create unique index campaign_daily_counted on campaign_daily (day, campaign) where counted;

-- A thousandth, rounded half-even; a single expression, so that it can be inlined.
create function rounded_thousandth(value bigint) returns bigint immutable language sql as $$
    select (value - (value % 1000 + 1000) % 1000) / 1000
        + case
            when (value % 1000 + 1000) % 1000 > 500 then 1
            when (value % 1000 + 1000) % 1000 = 500
                and (value - 500) / 1000 % 2 <> 0 then 1
            else 0
        end
$$;

-- Figures of their traffic that SSPs see besides the report (contract 11), by the UTC day of arrival.
-- Rows add up, as above.

create table anomaly (
    code int primary key,                  -- in the ledger's counters (drain/names.py)
    name text not null unique
);
insert into anomaly values
    (11, 'win_late'), (12, 'billing_late'), (14, 'loss_late'),             -- counted on another day
    (21, 'win_duplicate'), (22, 'billing_duplicate'), (24, 'loss_duplicate'),
    (31, 'win_expired'), (32, 'billing_expired'), (34, 'loss_expired'),    -- no longer remembered
    (40, 'bid_reused'),                -- the auction and impression already had a bid
    (41, 'bid_taken'),                 -- another SSP family had a bid on them: answered 204
    (51, 'win_altered'), (52, 'billing_altered'), (54, 'loss_altered'),    -- URL altered but repairable
    (60, 'lost_and_won');              -- a loss and a win or billing notice of one bid

create table anomaly_daily (
    day date not null,
    descriptor text not null,
    anomaly text not null,
    times bigint not null default 0,
    counted boolean not null default false
) with (fillfactor = 80);
create index anomaly_daily_key on anomaly_daily (descriptor, day);
create unique index anomaly_daily_counted on anomaly_daily (day, descriptor, anomaly) where counted;

-- Bid requests by outcome, as counted by the workers: statistics, not accounting.
create table request_daily (
    day date not null,
    descriptor text not null,
    source text not null,                  -- the data set in Redis; a day may have several
    answers bigint not null,               -- of any status
    counts jsonb not null,                 -- outcome:…, status:…, broken:…, requests, country, ua, ip …
    examples jsonb not null,               -- broken rule -> the position in one request
    primary key (descriptor, day, source)
) with (fillfactor = 80);


-- 5 The ledger and the drain --------------------------------------------------------------------

-- The warehouse's own ledger: the data set of each of its shards, '' if it has none yet. Other ledgers
-- from which the warehouse has absorbed counters (drain_fence) are former ones (contract 5.3).
create table ledger_shard (
    shard int primary key,
    epoch text not null
);

create trigger ledger_shard_announce after insert or update or delete or truncate on ledger_shard
    for each statement execute function catalog_announce();

-- The absorbed value of each counter in Redis, from which the drain adds the difference.
--
-- A source has the counters of one run of Redis: a segment of a shard's data set. After a loss of data
-- there is another data set. Counters of a source may decrease (bids are rolled back), unless the data
-- set was replaced by an older copy of itself: the segments of that time are outdated, and add only
-- what exceeds the absorbed value. Within a source, a day's counters that were removed and began anew
-- are another generation.

create table drain_source (
    source int generated always as identity primary key,
    epoch text not null,                   -- the data set
    segment text not null,
    shard int not null,
    seen_on date not null,
    retired_on date,                       -- days up to this one are closed: they add nothing more
    outdated boolean not null default false,
    forgotten_to date,                     -- absorbed values were dropped up to this day
    constraint drain_source_key unique (epoch, segment, shard)
);

-- A counter's row keeps its previous value, so the difference needs no separate read. Half of each page
-- is left free, so a round can update all of its rows in place.
create table drain_absorbed (
    source int not null references drain_source,
    day date not null,
    generation int not null,
    kind text not null,                    -- as in Redis (drain/names.py)
    number int not null,                   -- of the SSP or the campaign
    reason int not null,                   -- loss reason, anomaly's code, or rejecting SSP; else 0
    value bigint not null,
    before bigint,
    primary key (source, day, generation, kind, number, reason)
) with (fillfactor = 45);

-- The last batch of counters absorbed from a data set: its number, 0 for none yet, and the segment that
-- was current when it was read. Together they identify a batch among all copies of the ledger.
create table drain_fence (
    epoch text not null,
    shard int not null,
    batch bigint not null default 0,
    segment text not null default '',
    primary key (epoch, shard)
);


-- 6 Server events -------------------------------------------------------------------------------

-- Products and their keys (contract 7).

create table product (
    name text primary key
        constraint product_name_form check (name ~ '^[A-Za-z0-9._~-]{1,128}$'),
    presets text[] not null default '{}'   -- subscribed presets; general.core needs no subscription
);

create table api_key (
    hash bytea primary key                 -- SHA-256 of the key, which itself is not stored
        constraint api_key_hash_size check (octet_length(hash) = 32),
    product text not null references product on update cascade on delete cascade,
    rate int not null default 6000         -- requests in a rolling minute
        constraint api_key_rate check (rate between 1 and 1000000),
    events int not null default 60000      -- events in a rolling minute
        constraint api_key_events check (events between 1024 and 100000000),
    issued_at timestamptz not null default now()
);

create trigger product_announce after insert or update or delete or truncate on product
    for each statement execute function catalog_announce();
create trigger api_key_announce after insert or update or delete or truncate on api_key
    for each statement execute function catalog_announce();

-- The operator's exchange rates: each applies from its day until the currency's next entry.
create table operator_rate (
    currency text not null
        constraint operator_rate_currency check (currency ~ '^[A-Z0-9]{2,10}$' and currency <> 'USD'),
    day date not null,
    usd numeric not null                   -- USD per unit
        constraint operator_rate_usd check (usd > 0 and usd < 1e30),
    primary key (currency, day)
);

-- Incremented with every change of the rates, in the same transaction.
create table operator_rate_revision (
    revision bigint not null
);
insert into operator_rate_revision values (1);

create function operator_rate_stamp() returns trigger language plpgsql as $$
begin
    update operator_rate_revision set revision = revision + 1;
    return null;
end $$;

create trigger operator_rate_1_stamp after insert or update or delete or truncate on operator_rate
    for each statement execute function operator_rate_stamp();
create trigger operator_rate_2_announce after insert or update or delete or truncate on operator_rate
    for each statement execute function catalog_announce();

-- Events, the first of each event_id, partitioned by the day or month of receipt: old events are
-- removed by dropping partitions (warehouse/partitions.py).
create table events (
    event_id text not null,
    product text not null,
    event text not null,
    occurred_at timestamptz not null,
    received_at timestamptz not null default now(),
    client_user_id text,
    anonymous_id text,
    click_id text,
    context jsonb not null default '{}',
    enrichment jsonb not null default '{}',
    flags text[] not null default '{}',    -- inconsistencies with its sequence
    -- The click for which it counts (section 11), null if none; value_micros and first_deposit are
    -- included in the sums of conversion_daily.
    campaign text,
    creative text,
    descriptor text,
    value_micros bigint,
    first_deposit boolean,
    arrival bigserial not null             -- the order of storage
) partition by range (received_at);

-- Ids may be longer than a btree allows: a prefix is enough.
create index events_bonus on events (left(context ->> 'bonus_id', 64))
    where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out');
create index events_deposit on events (left(context ->> 'transaction_id', 64))
    where event in ('deposit_initiated', 'deposit', 'deposit_failed');
create index events_deposit_attempt on events (product, occurred_at)
    where event in ('deposit', 'deposit_failed');
-- Rows are stored roughly in the order of receipt, so this finds the blocks of an hour.
create index events_received_at on events using brin (received_at) with (autosummarize = on);

-- Events received on a day that has no partition (yet).
create table events_other partition of events (primary key (event_id)) default;
create index events_other_received_at on events_other (received_at);

-- The partitions of events and the time range of each, without events_other.
create view event_partitions as
select c.oid::regclass::text as name,
    trim(bounds[1], '''')::timestamptz as first,
    trim(bounds[2], '''')::timestamptz as next
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
cross join lateral regexp_match(
    pg_get_expr(c.relpartbound, c.oid), 'FROM \((.+)\) TO \((.+)\)') as bounds
where i.inhparent = 'events'::regclass and bounds is not null;

-- The ids of all stored events, and of some deleted ones: an event with an id in this table is not
-- stored again, whichever partition it would be in. Events of the same bonus or deposit share a
-- `sequence` (drain/sequences.py).
create table event_ids (
    event_id text not null primary key,
    received_at timestamptz not null,
    sequence bytea
) partition by hash (event_id);
do $$
begin
    for part in 0..7 loop
        execute format(
            'create table event_ids_%s partition of event_ids'
            ' for values with (modulus 8, remainder %s)', part, part);
    end loop;
end $$;
create index event_ids_received_at on event_ids (received_at);
create index event_ids_sequence on event_ids (sequence, event_id) where sequence is not null;

-- A bonus may have any number of cash-outs. Those that arrived before the event they refer to are
-- flagged again in pages (drain/sequences.py). A row records the progress, and is deleted at the end.
create table event_revision (
    sequence bytea primary key,            -- of the cash-outs, in event_ids
    bonus bytea not null,                  -- the sequence of the other events of the bonus
    after text not null default '',        -- the last event_id of the finished pages
    revised bigint not null default 0,     -- events in these pages
    at timestamptz not null default clock_timestamp()  -- of the last page; the oldest is next
);
create index event_revision_at on event_revision (at);

-- Payloads that differ from the stored event with their id, each once.
create table event_conflicts (
    event_id text not null,
    product text not null,
    received_at timestamptz not null default now(),
    context jsonb not null,
    digest bytea not null,                 -- of the whole envelope
    primary key (event_id, digest)
);
create index event_conflicts_received_at on event_conflicts (received_at);

-- Events that could not be stored; `snapbid events replay` queues the `payload` again.
create table event_dead_letters (
    number bigint generated always as identity primary key,
    event_id text,                         -- null if the entry as a whole cannot be read
    product text,
    received_at timestamptz,
    failed_at timestamptz not null default now(),
    reason text not null,                  -- quotes no value of the event
    payload bytea not null,
    digest bytea not null unique           -- of the payload
);

create view bonus_status as
select product,
    context ->> 'bonus_id' as bonus_id,
    case max(array_position(
        array['bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out'], event))
        when 1 then 'offered' when 2 then 'claimed' when 3 then 'completed' else 'cashed_out'
    end as state,
    coalesce(sum((context ->> 'cashout_amount')::numeric)
        filter (where event = 'bonus_cashed_out'), 0) as cashed_out
from events
where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out')
group by product, context ->> 'bonus_id';

-- Deposit attempts by the UTC day on which they ended.
create view deposit_attempts as
select product, (occurred_at at time zone 'UTC')::date as day, count(*) as attempts
from events
where event in ('deposit', 'deposit_failed')
group by product, (occurred_at at time zone 'UTC')::date;


-- 7 Forgotten persons ---------------------------------------------------------------------------

-- Privacy requests: ids are not kept, only keyed hashes of them.

create table suppression_key (
    key bytea not null default decode(
        replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
    single boolean primary key default true check (single)
);
insert into suppression_key default values;

create table suppressed (
    hash bytea primary key,                -- see campaigns/suppression.py
    since timestamptz not null default now()
);
-- The ids of forgotten persons in bid requests, as hashes (campaigns/persons.py); lists and clicks
-- leave them out.
create table suppressed_member (
    member bigint primary key
);

create trigger suppressed_announce after insert or update or delete or truncate on suppressed
    for each statement execute function catalog_announce();


-- 8 Audiences -----------------------------------------------------------------------------------

-- Persons grouped by their events (contract 12). A person is the keyed hash of a product's user in
-- server events, a member that of an id in bid requests (campaigns/persons.py): no id is kept.

-- With an id: an operator's audience, of the events of a product or, without a product, a list of
-- members. Without an id: the persons to whom the product must not advertise.
create table audience (
    number int generated always as identity primary key,
    id text unique
        constraint audience_id_form check (id ~ '^[A-Za-z0-9._~-]{1,128}$'),
    product text,
    event text,
    within_days int,
    at_least int,
    min_amount_usd bigint,                 -- micro-USD
    added_at timestamptz not null default now(),
    complete boolean not null default false,  -- all stored events are counted, or all ids listed
    constraint audience_is_named check (id is not null or product is not null),
    constraint audience_is_of_events check (
        num_nulls(event, within_days, at_least) in (0, 3)
        and (event is null) = (id is null or product is null))
);
create unique index audience_of_product on audience (product) where id is null;

-- The persons behind an anonymous id.
create table person_alias (
    anonymous bigint not null,
    person bigint not null,
    seen_at timestamptz not null default clock_timestamp(),
    primary key (anonymous, person)
);
create index person_alias_person on person_alias (person);
create index person_alias_seen_at on person_alias (seen_at);

-- The members by which bid requests reveal a person of a product, and whether the product must not
-- advertise to that person (person_restriction).
create table person_link (
    person bigint not null,
    member bigint not null,
    product text not null,
    restricted boolean not null,
    seen_at timestamptz not null default now(),
    person_seen_at timestamptz not null default now(),  -- any event of the person, to a day
    primary key (person, member)
);
create index person_link_member on person_link (member, product, seen_at);
create index person_link_restricted on person_link (member, product) where restricted;
create index person_link_person_seen_at on person_link (person_seen_at);

-- The newest events that count for an audience, at most `at_least` of them, newest first; the person
-- is in it until `until`, null if these are too few.
create table person_audience (
    person bigint not null,
    audience int not null references audience on delete cascade,
    times timestamptz[] not null,
    until timestamptz,
    fades_at timestamptz not null,         -- when the newest of them no longer counts
    primary key (person, audience)
);
create index person_audience_fades_at on person_audience (fades_at);
create index person_audience_audience on person_audience (audience);

-- The last times at which a person was blocked by a product for self-exclusion, was unblocked, and
-- refused and accepted its marketing.
create table person_restriction (
    person bigint primary key,
    product text not null,
    blocked_at timestamptz,
    unblocked_at timestamptz,
    refused_at timestamptz,
    accepted_at timestamptz,
    holds boolean not null generated always as (
        coalesce(blocked_at >= coalesce(unblocked_at, '-infinity'), false)
        or coalesce(refused_at >= coalesce(accepted_at, '-infinity'), false)) stored
);

-- The audiences of each member, and until when it is in them, for workers to look up. Writers take
-- turns (by a lock until commit), so a reader that has seen revision n has missed none below n.
create sequence audience_revision;
create table audience_member (
    member bigint not null,
    audience int not null,
    until timestamptz not null,            -- in the past in rows that have ended
    revision bigint not null,
    primary key (member, audience)
);
create index audience_member_revision on audience_member (revision);
create index audience_member_until on audience_member (until);

-- The bases of members that machines have made from this warehouse. One that is not listed was made
-- from data that a restored backup lacks, or from another warehouse.
create table audience_base (
    id uuid primary key default gen_random_uuid(),
    made_at timestamptz not null default now()
);

create function audience_lock() returns void language sql as $$
    select pg_advisory_xact_lock(7165064744911531885)
$$;


-- 9 The audit trail -----------------------------------------------------------------------------

-- Who changed which SSP, campaign, product, key or token, and when.
--
-- Triggers write it in the transaction of the change, for plain SQL as well. A program states its user
-- in the session setting snapbid.actor; role is checked by PostgreSQL itself. Entries are only added,
-- never changed.

create table audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default now(),
    kind text not null
        constraint audit_kind check (kind in (
            'ssp', 'campaign', 'product', 'key', 'token', 'creative', 'person', 'audience')),
    object text,                           -- null in an entry for many objects
    action text not null,
    count int not null default 1,
    -- Each changed field with [before, after], or null where these are long. In an entry for many
    -- campaigns: their first and last revision.
    detail jsonb,
    actor text default nullif(current_setting('snapbid.actor', true), ''),
    role text not null default session_user,
    application text not null default current_setting('application_name'),
    address inet default inet_client_addr(),
    constraint audit_one_or_many check (object is null or count = 1)
);
create index audit_at on audit (at);
create index audit_object on audit (object);

create function audit_refuse() returns trigger language plpgsql as $$
begin
    raise exception using
        errcode = 'restrict_violation',
        message = 'entries of the audit trail cannot be changed or removed';
end $$;

create trigger audit_append_only before update or delete or truncate on audit
    for each statement execute function audit_refuse();

-- The fields in which two documents differ; a null document has no fields. A null field or an empty
-- list equals a missing field.
create function audit_difference(before jsonb, after jsonb) returns jsonb
language sql immutable as $$
    select jsonb_object_agg(
        field,
        case when length(coalesce(before ->> field, '')) + length(coalesce(after ->> field, '')) <= 200
             then jsonb_build_array(before -> field, after -> field) end)
    from jsonb_object_keys(coalesce(before, '{}') || coalesce(after, '{}')) field
    where nullif(nullif(before -> field, 'null'), '[]')
        is distinct from nullif(nullif(after -> field, 'null'), '[]')
$$;

-- Small tables, row by row. Arguments: the kind, and the column that names the object.

create function audit_row() returns trigger language plpgsql as $$
declare
    before jsonb;
    after jsonb;
    action text := case tg_op when 'INSERT' then 'added' when 'UPDATE' then 'changed'
                              else 'removed' end;
    name text;
begin
    if tg_op <> 'INSERT' then
        before := to_jsonb(old);
    end if;
    if tg_op <> 'DELETE' then
        after := to_jsonb(new);
    end if;
    if before = after then
        return null;
    end if;
    name := coalesce(after, before) ->> tg_argv[1];
    if tg_argv[0] = 'key' then
        name := substr(name, 3, 12);  -- after '\x': the id by which the key is listed
    end if;
    insert into audit (kind, object, action, detail) values (
        tg_argv[0], name, action, audit_difference(before - 'hash', after - 'hash'));
    return null;
end $$;

create trigger ssp_5_audit after insert or update or delete on ssp
    for each row execute function audit_row('ssp', 'descriptor');
create trigger product_audit after insert or update or delete on product
    for each row execute function audit_row('product', 'name');
create trigger api_key_audit after insert or update or delete on api_key
    for each row execute function audit_row('key', 'hash');

create trigger audience_audit_added after insert on audience
    for each row when (new.id is not null) execute function audit_row('audience', 'id');
create trigger audience_audit_changed after update on audience
    for each row when (new.id is not null) execute function audit_row('audience', 'id');
create trigger audience_audit_removed after delete on audience
    for each row when (old.id is not null) execute function audit_row('audience', 'id');

create function audit_truncate() returns trigger language plpgsql as $$
declare
    many bigint;
begin
    execute format('select count(*) from %I', tg_table_name) into many;
    if many > 0 then
        insert into audit (kind, object, action, count)
        values (tg_argv[0], null, 'removed', many);
    end if;
    return null;
end $$;

create trigger ssp_5_audit_all before truncate on ssp
    for each statement execute function audit_truncate('ssp');
create trigger product_audit_all before truncate on product
    for each statement execute function audit_truncate('product');
create trigger api_key_audit_all before truncate on api_key
    for each statement execute function audit_truncate('key');
create trigger campaign_5_audit_all before truncate on campaign
    for each statement execute function audit_truncate('campaign');

-- Campaigns, statement by statement: an entry for each of up to a thousand, else one for all of them.
-- The other triggers need the statement's rows anyway.

create function audit_campaigns_added() returns trigger language plpgsql as $$
declare
    many bigint;
begin
    select count(*) into many from (select from new_campaign limit 1001) first_ones;
    if many <= 1000 then
        insert into audit (kind, object, action, detail)
        select 'campaign', id, 'added', audit_difference(null, document - 'id')
        from new_campaign order by revision;
    else
        insert into audit (kind, action, count, detail)
        select 'campaign', 'added', count(*), jsonb_build_object(
            'revisions', jsonb_build_array(min(revision), max(revision)))
        from new_campaign;
    end if;
    return null;
end $$;

create function audit_campaigns_changed() returns trigger language plpgsql as $$
declare
    many bigint;
    before bigint;
begin
    select count(*) into many from (select from new_campaign limit 1001) first_ones;
    if many <= 1000 then
        insert into audit (kind, object, action, detail)
        select 'campaign', coalesce(n.id, o.id),
            case when o.id is null then 'added' when n.id is null then 'removed'
                 when o.document - 'status' <> n.document - 'status' then 'changed'
                 when n.status = 'paused' then 'paused' else 'resumed' end,
            audit_difference(o.document - 'id', n.document - 'id')
        from old_campaign o full join new_campaign n using (id)
        where o.document is distinct from n.document
        order by coalesce(n.revision, o.revision);
        return null;
    end if;
    -- An unchanged row keeps its revision; a new revision is greater than all earlier ones.
    select max(revision) into before from old_campaign;
    insert into audit (kind, action, count, detail)
    select 'campaign', 'changed', count(*), jsonb_build_object(
        'revisions', jsonb_build_array(min(revision), max(revision)))
    from new_campaign where revision > before
    having count(*) > 0;
    return null;
end $$;

create function audit_campaigns_removed() returns trigger language plpgsql as $$
declare
    many bigint;
begin
    select count(*) into many from old_campaign;
    if many <= 1000 then
        insert into audit (kind, object, action, detail)
        select 'campaign', id, 'removed', audit_difference(document - 'id', null)
        from old_campaign order by revision;
    else
        insert into audit (kind, action, count) values ('campaign', 'removed', many);
    end if;
    return null;
end $$;

create trigger campaign_5_audit_added after insert on campaign
    referencing new table as new_campaign
    for each statement execute function audit_campaigns_added();
create trigger campaign_5_audit_changed after update on campaign
    referencing old table as old_campaign new table as new_campaign
    for each statement execute function audit_campaigns_changed();
create trigger campaign_5_audit_removed after delete on campaign
    referencing old table as old_campaign
    for each statement execute function audit_campaigns_removed();

-- Creatives: a suspension that begins, and one that ends early.
create function audit_suspension() returns trigger language plpgsql as $$
begin
    if tg_op <> 'DELETE' and new.until > now()
        and (tg_op = 'INSERT' or old.until is null or old.until <= now()) then
        insert into audit (kind, object, action, detail) values (
            'creative', new.campaign, 'suspended', jsonb_build_object(
                'creative', jsonb_build_array(null, new.creative),
                'ssp', jsonb_build_array(null, new.ssp),
                'reason', jsonb_build_array(null, new.reason)));
    elsif tg_op <> 'INSERT' and old.until > now()
        and (tg_op = 'DELETE' or new.until is null or new.until <= now()) then
        insert into audit (kind, object, action, detail) values (
            'creative', old.campaign, 'resumed', jsonb_build_object(
                'creative', jsonb_build_array(old.creative, null),
                'ssp', jsonb_build_array(old.ssp, null),
                'reason', jsonb_build_array(old.reason, null)));
    end if;
    return null;
end $$;

create trigger creative_suspension_audit after insert or update or delete on creative_suspension
    for each row execute function audit_suspension();
create trigger creative_suspension_audit_all before truncate on creative_suspension
    for each statement execute function audit_truncate('creative');


-- 10 The catalog's base -------------------------------------------------------------------------

-- The index of all campaigns, built by one machine for the others to fetch. Unlogged: if a crash of
-- PostgreSQL empties the tables, it is built again.

create unlogged table catalog_base (
    id bigint generated always as identity primary key,
    layout text not null,                  -- the code and processor for which it is built
    warehouse text not null,               -- the name of the warehouse whose campaigns it has,
    revision bigint not null,              -- up to this revision,
    campaigns int not null,                -- and their number
    size bigint not null,                  -- bytes
    sha256 bytea not null,
    built_by text not null,                -- the host
    built_at timestamptz not null default now()
);

create unlogged table catalog_base_part (
    base bigint not null references catalog_base on delete cascade,
    number int not null,                   -- from 0
    content bytea not null,
    primary key (base, number)
);
alter table catalog_base_part alter content set storage external;


-- 11 Clicks and conversions ----------------------------------------------------------------------

-- Keys of click ids (contract 12): workers sign with the newest, and all of them are valid. A key's
-- number modulo 16 is in the click ids.
create table click_key (
    number int generated always as identity primary key,
    secret bytea not null default decode(
        replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
        constraint click_key_secret_size check (octet_length(secret) >= 32),
    since timestamptz not null default now()
);
insert into click_key default values;

create trigger click_key_announce after insert or update or delete or truncate on click_key
    for each statement execute function catalog_announce();

-- The last click of each person of a product, until its campaign's window is over.
create table click_link (
    person bigint primary key,             -- a keyed hash (campaigns/persons.py)
    clicked_at timestamptz not null,
    expires_at timestamptz not null,
    campaign text not null,
    creative text not null,
    descriptor text not null,
    has_deposited boolean not null default false
);
create index click_link_expires_at on click_link (expires_at);

-- Events that count for a click, by the UTC day on which they were accepted. Rows add up, as in the
-- report tables.
create table conversion_daily (
    day date not null,
    campaign text not null,
    creative text not null,
    descriptor text not null,
    event text not null,
    conversions bigint not null default 0,
    value_micros bigint not null default 0,    -- micro-USD, as the catalog of events values them
    first_deposits bigint not null default 0,  -- of persons who had not deposited since a click
    unvalued bigint not null default 0,        -- those with an amount that counts as 0: without a rate
    counted boolean not null default false
) with (fillfactor = 80);
create index conversion_daily_key on conversion_daily (campaign, day);
create unique index conversion_daily_counted
    on conversion_daily (day, campaign, creative, descriptor, event) where counted;

-- What campaigns cost and brought in from one day to another, in USD.
create function campaign_performance(
    first_day date, last_day date, only_campaigns text[] default null
) returns table (
    campaign text,
    bids bigint,
    wins bigint,
    imps bigint,
    spend numeric,
    conversions jsonb,                     -- event -> number
    registrations bigint,
    first_deposits bigint,
    net_deposits numeric,                  -- deposits less withdrawals
    gross_revenue numeric,                 -- stakes less winnings
    cost_per_registration numeric,
    cost_per_first_deposit numeric,
    return_on_spend numeric,               -- gross revenue for each USD spent
    unvalued bigint                        -- conversions with an amount that counts as 0
) stable language sql as $$
    with bought as (
        select campaign, sum(bids) as bids, sum(wins) as wins, sum(imps) as imps,
            sum(spend_micros) as spend
        from campaign_daily where day between first_day and last_day
            and (only_campaigns is null or campaign = any(only_campaigns))
        group by campaign
    ),
    by_event as (
        select campaign, event, sum(conversions) as conversions, sum(value_micros) as value,
            sum(first_deposits) as first_deposits, sum(unvalued) as unvalued
        from conversion_daily where day between first_day and last_day
            and (only_campaigns is null or campaign = any(only_campaigns))
        group by campaign, event
    ),
    won as (
        select campaign,
            jsonb_object_agg(event, conversions order by event) as conversions,
            sum(conversions) filter (where event = 'register') as registrations,
            sum(first_deposits) as first_deposits,
            sum(unvalued) as unvalued,
            sum(value) filter (where event in ('deposit', 'withdraw')) as net_deposits,
            sum(value) filter (where event = 'bet') as gross_revenue
        from by_event group by campaign
    ),
    of_campaign as (
        select campaign,
            coalesce(bids, 0)::bigint as bids,
            coalesce(wins, 0)::bigint as wins,
            coalesce(imps, 0)::bigint as imps,
            coalesce(spend, 0) / 1000000.0 as spend,
            coalesce(w.conversions, '{}') as conversions,
            coalesce(registrations, 0)::bigint as registrations,
            coalesce(first_deposits, 0)::bigint as first_deposits,
            coalesce(unvalued, 0)::bigint as unvalued,
            coalesce(net_deposits, 0) / 1000000.0 as net_deposits,
            coalesce(gross_revenue, 0) / 1000000.0 as gross_revenue
        from bought full join won w using (campaign)
    )
    select campaign, bids, wins, imps, round(spend, 6), conversions, registrations, first_deposits,
        round(net_deposits, 6), round(gross_revenue, 6),
        round(spend / nullif(registrations, 0), 6),
        round(spend / nullif(first_deposits, 0), 6),
        round(gross_revenue / nullif(spend, 0), 6),
        unvalued
    from of_campaign
$$;

create view campaign_performance as
select * from campaign_performance('-infinity', 'infinity');
