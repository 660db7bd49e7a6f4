-- The audit trail: who has changed which SSP, campaign, product, key or token, and when.
--
-- Triggers write it in the transaction of the change, so plain SQL is in it as well. What a program
-- says of its user is in snapbid.actor, a setting of the session; role is what PostgreSQL itself has
-- checked. Entries are added and never changed.

create table audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default now(),
    kind text not null
        constraint audit_kind check (kind in ('ssp', 'campaign', 'product', 'key', 'token')),
    object text,                          -- null where one entry stands for many
    action text not null,
    count int not null default 1,
    -- The fields that differ, each with [before, after], or null where these are long. Where one
    -- entry stands for many campaigns: their first and last revision.
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
        message = 'the audit trail is only added to';
end $$;

create trigger audit_append_only before update or delete or truncate on audit
    for each statement execute function audit_refuse();


-- The fields in which two documents differ; null is one without fields. Null and an empty list say
-- as little as a field that is missing.
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


-- Small tables, row by row. The arguments: the kind, and the column that names the object.

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
        name := substr(name, 3, 12);  -- of '\x…': the id by which the key is listed
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


-- Campaigns, statement by statement: an entry each for up to a thousand, else one for all of them.
-- The statement's rows are kept for the other triggers already.

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
    -- A row that is the same as before keeps its revision; a new revision is above all before it.
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
