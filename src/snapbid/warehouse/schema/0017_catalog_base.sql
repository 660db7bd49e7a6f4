-- The index of all campaigns as one machine has built it, for the others to fetch. Unlogged: what a
-- crash of PostgreSQL empties is built again.

create unlogged table catalog_base (
    id bigint generated always as identity primary key,
    layout text not null,              -- the code and the processor that it is for
    warehouse text not null,           -- the campaigns that it covers: of which warehouse,
    revision bigint not null,          -- up to which revision,
    campaigns int not null,            -- and how many
    size bigint not null,              -- bytes
    sha256 bytea not null,
    built_by text not null,            -- the host
    built_at timestamptz not null default now()
);

create unlogged table catalog_base_part (
    base bigint not null references catalog_base on delete cascade,
    number int not null,               -- from 0
    content bytea not null,
    primary key (base, number)
);
alter table catalog_base_part alter content set storage external;
