-- What the ledger and the drain need (contract 5).
--
-- Numbers: the ledger's records in Redis name descriptors and campaigns by number, to be small. A
-- number is given at the first insert, plain SQL included, and kept for ever: a descriptor or a
-- campaign that is gone and comes back has its old number, and late counts still find their name.

create table ssp_number (
    number int generated always as identity primary key,
    descriptor text not null unique,
    canonical text not null            -- as it is, or was last, registered
);

create table campaign_number (
    number int generated always as identity primary key,
    id text not null unique
);

-- Writers of ssp and campaign take turns, so nobody else gives a number between look and insert.

create function ssp_number_give() returns trigger language plpgsql as $$
begin
    update ssp_number n set canonical = s.canonical
    from new_ssp s where s.descriptor = n.descriptor and s.canonical <> n.canonical;
    insert into ssp_number (descriptor, canonical)
    select s.descriptor, s.canonical from new_ssp s
    where not exists (select from ssp_number n where n.descriptor = s.descriptor)
    order by s.descriptor;
    return null;
end $$;

create function campaign_number_give() returns trigger language plpgsql as $$
begin
    insert into campaign_number (id)
    select c.id from new_campaign c
    where not exists (select from campaign_number n where n.id = c.id)
    order by c.id;
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

insert into ssp_number (descriptor, canonical)
select descriptor, canonical from ssp order by descriptor;
insert into campaign_number (id) select id from campaign order by id;


-- The drain: what it has absorbed of each counter in Redis, so that it can add the difference.
--
-- A source is one data set of one shard: Redis data that was lost and begun anew is another one.
-- Within a source, the counters of a day that were removed and begun anew are another generation.

create table drain_source (
    source int generated always as identity primary key,
    epoch text not null,               -- the data set
    shard int not null,
    seen_on date not null,
    retired_on date,                   -- its days up to here are closed: they add nothing more
    unique (epoch, shard)
);

create table drain_absorbed (
    source int not null references drain_source,
    day date not null,
    generation int not null,
    kind text not null,                -- as in Redis: of an SSP b w p i l, of a campaign B W P I
    number int not null,               -- of the SSP or the campaign
    reason int not null,               -- of losses, else 0
    value bigint not null,
    primary key (source, day, generation, kind, number, reason)
) with (fillfactor = 80);              -- raised in place, over and over

-- The exact sum from which the spend is rounded: of the wins' CPM, micro-USD.
alter table campaign_daily add column win_cpm_micros bigint not null default 0;

alter table campaign_daily set (fillfactor = 80);
alter table bid_daily set (fillfactor = 80);
alter table impression_daily set (fillfactor = 80);
alter table loss_daily set (fillfactor = 80);

-- A thousandth, rounded half-even; one expression, so that it is inlined.
create function rounded_thousandth(value bigint) returns bigint immutable language sql as $$
    select (value - (value % 1000 + 1000) % 1000) / 1000
        + case
            when (value % 1000 + 1000) % 1000 > 500 then 1
            when (value % 1000 + 1000) % 1000 = 500
                and (value - 500) / 1000 % 2 <> 0 then 1
            else 0
        end
$$;
