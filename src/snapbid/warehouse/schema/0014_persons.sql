-- Persons who are forgotten (privacy requests): no id of theirs is kept, but keyed hashes.

create table suppression_key (
    key bytea not null default decode(
        replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'),
    single boolean primary key default true check (single)
);
insert into suppression_key default values;

create table suppressed (
    hash bytea primary key,            -- see suppression.py
    since timestamptz not null default now()
);
create trigger suppressed_announce after insert or update or delete or truncate on suppressed
    for each statement execute function catalog_announce();

alter table audit drop constraint audit_kind,
    add constraint audit_kind check (kind in (
        'ssp', 'campaign', 'product', 'key', 'token', 'creative', 'person'));
