-- For which family an SSP is reported, by day (document 1: closed days do not change).
--
-- A day is reported for the canonical id that a descriptor had on it. Another one in the registry
-- counts from the next day on; days that are open change by ssp_regroup alone, and closed ones never.
-- What was removed keeps its days.

create table ssp_family (
    descriptor text not null,
    canonical text not null,
    since date not null,               -- '-infinity' of the first
    until date not null,               -- that day, too; 'infinity' of the last
    primary key (descriptor, since),
    constraint ssp_family_is_a_span check (since <= until)
);
create index ssp_family_canonical on ssp_family (canonical);

alter table ssp_number add column removed_on date;  -- null while its descriptor is registered

-- A day is open until 02:00 UTC of the next.
create function first_open_day() returns date stable language sql as $$
    select (now() at time zone 'UTC' - interval '2 hours')::date
$$;

create function utc_today() returns date stable language sql as $$
    select (now() at time zone 'UTC')::date
$$;

-- Gives a descriptor's days from this one on to a family, with the impressions counted on them.
create function ssp_family_set(name text, family text, first_day date) returns void
language plpgsql as $$
begin
    if exists (select from ssp_family where descriptor = name) then
        -- No drain absorbs meanwhile: it would count for the family of before.
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

-- Gives the days of a descriptor that are open to the family that it has in the registry; returns the
-- first of these days.
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

insert into ssp_family
select descriptor, canonical, '-infinity', 'infinity' from ssp_number;
update ssp_number n set removed_on = utc_today()
where not exists (select from ssp s where s.descriptor = n.descriptor);
