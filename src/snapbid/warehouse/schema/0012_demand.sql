-- Which of an SSP's traffic could be bid on at all: made from the campaigns, read by the SSP.
create table demand_signal (
    ssp text primary key,              -- the canonical id
    etag text not null,
    rules bytea not null,              -- JSON
    made_at timestamptz not null default now()
);
