-- A creative is suspended where an SSP rejects a share of its bids, not only a number of them.
alter table creative_rejection alter column reason drop not null,
    add column bids bigint not null default 0;
alter table creative_rest add column bids bigint not null default 0;
