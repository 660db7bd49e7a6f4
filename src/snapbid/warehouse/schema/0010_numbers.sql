-- Numbers are made from names (contract 5).
--
-- Counted up, a number was given again by a warehouse that had gone back to a backup, to another
-- campaign, while the ledger still had it for the first one. Made from its name, a number stands for
-- one campaign (or SSP) in all states of a warehouse. Those given before are kept.

-- 1 to 2^31 - 1. Another attempt where the number is taken, which is rare: 1 in 20,000 at 100,000.
create function number_of(name text, attempt int) returns int stable language sql as $$
    select (('x' || left(encode(sha256(convert_to(
        concat_ws(' ', id, attempt, name), 'UTF8')), 'hex'), 8))::bit(32)::bigint % 2147483647 + 1)::int
    from warehouse_identity
$$;

create or replace function ssp_number_give() returns trigger language plpgsql as $$
declare attempt int := 0;
begin
    update ssp_number n set canonical = s.canonical
    from new_ssp s where s.descriptor = n.descriptor and s.canonical <> n.canonical;
    while exists (
        select from new_ssp s
        where not exists (select from ssp_number n where n.descriptor = s.descriptor)
    ) loop
        insert into ssp_number (number, descriptor, canonical)
        select number_of(s.descriptor, attempt), s.descriptor, s.canonical from new_ssp s
        where not exists (select from ssp_number n where n.descriptor = s.descriptor)
        order by s.descriptor
        on conflict (number) do nothing;
        attempt := attempt + 1;
    end loop;
    return null;
end $$;

create or replace function campaign_number_give() returns trigger language plpgsql as $$
declare attempt int := 0;
begin
    while exists (
        select from new_campaign c
        where not exists (select from campaign_number n where n.id = c.id)
    ) loop
        insert into campaign_number (number, id)
        select number_of(c.id, attempt), c.id from new_campaign c
        where not exists (select from campaign_number n where n.id = c.id)
        order by c.id
        on conflict (number) do nothing;
        attempt := attempt + 1;
    end loop;
    return null;
end $$;

alter table ssp_number alter number drop identity;
alter table campaign_number alter number drop identity;

-- The ledger is no longer told how far numbers have been given.
alter table warehouse_identity drop column ssps, drop column campaigns;
