-- The ledger that is this warehouse's own: the data set of each of its shards, '' of one that had none
-- yet. Others of which it has absorbed something (drain_fence) are former ones (contract 5.3).
create table ledger_shard (
    shard int primary key,
    epoch text not null
);

-- Workers learn of it with the catalog.
create trigger ledger_shard_announce after insert or update or delete or truncate on ledger_shard
    for each statement execute function catalog_announce();
