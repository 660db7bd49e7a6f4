-- Operator data: the SSP registry and the campaigns (contract 2).
--
-- Whatever changes them, plain SQL included, is announced on the channel snapbid_catalog when the
-- transaction commits. Writers take turns (a lock until commit), so that revisions become visible
-- in the order of their numbers: a reader that has seen revision n has missed none below n.

create function catalog_lock() returns void language sql as $$
    select pg_advisory_xact_lock(7165064744911531884)
$$;

create function catalog_turn() returns trigger language plpgsql as $$
begin
    perform catalog_lock();
    return null;
end $$;

create function catalog_announce() returns trigger language plpgsql as $$
begin
    perform pg_notify('snapbid_catalog', '');
    return null;
end $$;


-- Registry: a descriptor and the canonical id it counts under. A canonical id is a registered
-- descriptor that is its own canonical id.

create table ssp (
    descriptor text primary key
        constraint ssp_descriptor_form check (descriptor ~ '^[A-Za-z0-9._~-]{1,128}$'),
    canonical text not null references ssp (descriptor)
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


-- Campaigns: the document as imported. Its "status" and the column are kept equal, whichever of
-- the two is written (the column wins where both change).

create sequence campaign_revision;

create table campaign (
    id text primary key,
    document jsonb not null
        constraint campaign_document_is_object check (jsonb_typeof(document) = 'object'),
    status text not null
        constraint campaign_status check (status in ('active', 'paused')),
    updated_at timestamptz not null,
    revision bigint not null unique,
    constraint campaign_id_is_of_document check (document ->> 'id' is not distinct from id)
);

-- Campaigns that are gone, so that a reader can ask what changed since a revision.
create table campaign_gone (
    id text primary key,
    revision bigint not null unique
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
    new.updated_at := now();
    new.revision := nextval('campaign_revision');
    return new;
end $$;

create function campaign_bury() returns trigger language plpgsql as $$
begin
    insert into campaign_gone (id, revision)
    select id, nextval('campaign_revision') from old_campaign o
    where not exists (select from campaign c where c.id = o.id)
    on conflict (id) do update set revision = excluded.revision;
    return null;
end $$;

create function campaign_bury_all() returns trigger language plpgsql as $$
begin
    insert into campaign_gone (id, revision)
    select id, nextval('campaign_revision') from campaign
    on conflict (id) do update set revision = excluded.revision;
    return null;
end $$;

create trigger campaign_1_turn before insert or update or delete or truncate on campaign
    for each statement execute function catalog_turn();
create trigger campaign_2_stamp before insert or update on campaign
    for each row execute function campaign_stamp();
create trigger campaign_3_bury_deleted after delete on campaign
    referencing old table as old_campaign
    for each statement execute function campaign_bury();
create trigger campaign_3_bury_renamed after update on campaign
    referencing old table as old_campaign
    for each statement execute function campaign_bury();
create trigger campaign_3_bury_all before truncate on campaign
    for each statement execute function campaign_bury_all();
create trigger campaign_4_announce after insert or update or delete or truncate on campaign
    for each statement execute function catalog_announce();
