-- Events by the day, or the month, of their receipt, so that keeping them for a while is dropping
-- partitions (warehouse/partitions.py). `event_ids` has each id once, whichever partition its event
-- is in. Rows that are there stay in place, as the first partition.

create temporary table dependent_view on commit drop as
select distinct c.oid::regclass::text as name, pg_get_viewdef(c.oid) as definition,
    coalesce('with (' || array_to_string(c.reloptions, ', ') || ')', '') as options
from pg_depend d
join pg_rewrite r on r.oid = d.objid
join pg_class c on c.oid = r.ev_class and c.relkind = 'v'
where d.classid = 'pg_rewrite'::regclass and d.refobjid = 'events'::regclass;

create temporary table event_grant on commit drop as
select grantee, privilege_type, is_grantable
from pg_class c cross join aclexplode(c.relacl) where c.oid = 'events'::regclass;

create temporary table event_arrival on commit drop as
select last_value + 1 as next from events_arrival_seq;

alter table events rename to events_before;
alter index events_pkey rename to events_before_pkey;
alter index events_bonus rename to events_before_bonus;
alter index events_deposit rename to events_before_deposit;
alter index events_deposit_attempt rename to events_before_deposit_attempt;
alter table events_before alter column arrival drop identity;

create table events (like events_before including defaults including constraints)
    partition by range (received_at);
create sequence events_arrival_seq owned by events.arrival;
select setval('events_arrival_seq', next, false) from event_arrival;
alter table events alter column arrival set default nextval('events_arrival_seq');

create index events_bonus on events using hash ((context ->> 'bonus_id'))
    where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out');
create index events_deposit on events using hash ((context ->> 'transaction_id'))
    where event in ('deposit_initiated', 'deposit', 'deposit_failed');
create index events_deposit_attempt on events (product, occurred_at)
    where event in ('deposit', 'deposit_failed');

-- What was received on a day that has no partition (yet).
create table events_other (like events_before including constraints, primary key (event_id));
create index events_other_received_at on events_other (received_at);
alter table events attach partition events_other default;

-- The ids of all events that are kept, and of some that were: what is here is not stored again.
-- `sequence` is what events of a bonus or a deposit have in common (drain/sequences.py).
create table event_ids (
    event_id text not null,
    received_at timestamptz not null,
    sequence bytea
) partition by hash (event_id);
do $$
begin
    for part in 0..7 loop
        execute format(
            'create table event_ids_%s partition of event_ids'
            ' for values with (modulus 8, remainder %s)', part, part);
    end loop;
end $$;
insert into event_ids
select event_id, received_at,
    case when kind is not null then
        substr(sha256(convert_to(kind || ' ' || product || ' ' || (context ->> id), 'UTF8')), 1, 16)
    end
from events_before
left join (values
    ('bonus_offered', 'bonus', 'bonus_id'), ('bonus_claimed', 'bonus', 'bonus_id'),
    ('bonus_completed', 'bonus', 'bonus_id'), ('bonus_cashed_out', 'cashout', 'bonus_id'),
    ('deposit_initiated', 'deposit', 'transaction_id'), ('deposit', 'deposit', 'transaction_id'),
    ('deposit_failed', 'deposit', 'transaction_id')
) as sequence (event, kind, id) using (event);
alter table event_ids add primary key (event_id);
create index event_ids_received_at on event_ids (received_at);
create index event_ids_sequence on event_ids (sequence) where sequence is not null;
create index event_conflicts_received_at on event_conflicts (received_at);

do $$
declare
    newest timestamptz := (select max(received_at) from event_ids);
    granted record;
    dependent record;
begin
    for granted in select * from event_grant loop
        execute format('grant %s on events to %s%s', granted.privilege_type,
            case granted.grantee when 0 then 'public' else granted.grantee::regrole::text end,
            case when granted.is_grantable then ' with grant option' else '' end);
    end loop;
    for dependent in select * from dependent_view loop
        execute format('create or replace view %s %s as %s',
            dependent.name, dependent.options, dependent.definition);
    end loop;
    if newest is null then
        drop table events_before;
    else
        execute format(
            'alter table events attach partition events_before for values from (minvalue) to (%L)',
            date_trunc('day', greatest(newest, now()), 'UTC') + interval '1 day');
    end if;
end $$;

-- The partitions of events and the time that each is for; none for events_other.
create view event_partitions as
select c.oid::regclass::text as name,
    case bounds[1] when 'MINVALUE' then '-infinity' else trim(bounds[1], '''') end::timestamptz
        as first,
    trim(bounds[2], '''')::timestamptz as next
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
cross join lateral regexp_match(
    pg_get_expr(c.relpartbound, c.oid), 'FROM \((.+)\) TO \((.+)\)') as bounds
where i.inhparent = 'events'::regclass and bounds is not null;
