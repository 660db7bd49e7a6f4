-- The ledger's data and the warehouse know each other (contract 5).

-- Who this warehouse is, which its backups share, and the highest numbers that the ledger was told.
create table warehouse_identity (
    id uuid not null default gen_random_uuid(),
    ssps int,
    campaigns int,
    single boolean primary key default true check (single)
);
insert into warehouse_identity default values;

-- A source is what one run of Redis has counted: a segment of a data set. Its counters may go down
-- (bids that are taken back), unless the data set was replaced by an older copy of itself: the
-- segments of that time are outdated, and count only where they have more than was absorbed.
alter table drain_source
    add column segment text not null default '',  -- '': counted before there were segments
    add column outdated boolean not null default false,
    add column forgotten_to date,                 -- up to here, nothing is known of its counters
    drop constraint drain_source_epoch_shard_key,
    add constraint drain_source_key unique (epoch, segment, shard);

-- The number of the last batch of counters that was absorbed of a data set.
create table drain_fence (
    epoch text not null,
    shard int not null,
    batch bigint not null default 0,
    primary key (epoch, shard)
);
