-- Server events (contract 7): products and their keys, rates, and the events themselves.
--
-- What changes products, keys or rates, plain SQL included, is announced on snapbid_catalog.

create table product (
    name text primary key
        constraint product_name_form check (name ~ '^[A-Za-z0-9._~-]{1,128}$'),
    presets text[] not null default '{}'   -- subscribed; general.core needs no subscription
);

create table api_key (
    hash bytea primary key                 -- SHA-256 of the key, which is kept nowhere
        constraint api_key_hash_size check (octet_length(hash) = 32),
    product text not null references product on update cascade on delete cascade,
    rate int not null default 6000         -- requests in a rolling minute
        constraint api_key_rate check (rate between 1 and 1000000),
    issued_at timestamptz not null default now()
);

-- The operator's exchange rates: from a day on, until the next entry of the same currency.
create table operator_rate (
    currency text not null
        constraint operator_rate_currency check (currency ~ '^[A-Z0-9]{2,10}$' and currency <> 'USD'),
    day date not null,
    usd numeric not null                   -- USD per unit
        constraint operator_rate_usd check (usd > 0 and usd < 1e30),
    primary key (currency, day)
);

-- Raised with every change of the rates, in the same transaction.
create table operator_rate_revision (
    revision bigint not null
);
insert into operator_rate_revision values (1);

create function operator_rate_stamp() returns trigger language plpgsql as $$
begin
    update operator_rate_revision set revision = revision + 1;
    return null;
end $$;

create trigger product_announce after insert or update or delete or truncate on product
    for each statement execute function catalog_announce();
create trigger api_key_announce after insert or update or delete or truncate on api_key
    for each statement execute function catalog_announce();
create trigger operator_rate_1_stamp after insert or update or delete or truncate on operator_rate
    for each statement execute function operator_rate_stamp();
create trigger operator_rate_2_announce after insert or update or delete or truncate on operator_rate
    for each statement execute function catalog_announce();


-- Events: the first of an event_id. `flags` say what does not fit its sequence.

create table events (
    event_id text primary key,
    product text not null,
    event text not null,
    occurred_at timestamptz not null,
    received_at timestamptz not null default now(),
    client_user_id text,
    anonymous_id text,
    click_id text,
    context jsonb not null default '{}',
    enrichment jsonb not null default '{}',
    flags text[] not null default '{}',
    arrival bigint generated always as identity  -- the order in which they were stored
);

-- Hash indexes, since an id may be longer than what a btree takes.
create index events_bonus on events using hash ((context ->> 'bonus_id'))
    where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out');
create index events_deposit on events using hash ((context ->> 'transaction_id'))
    where event in ('deposit_initiated', 'deposit', 'deposit_failed');
create index events_deposit_attempt on events (product, occurred_at)
    where event in ('deposit', 'deposit_failed');

-- Other payloads under the id of an event that is there, each once.
create table event_conflicts (
    event_id text not null,
    product text not null,
    received_at timestamptz not null default now(),
    context jsonb not null,
    digest bytea not null,                 -- of the whole envelope
    primary key (event_id, digest)
);

-- What could not be stored; `payload` is what `snapbid events replay` sends again.
create table event_dead_letters (
    number bigint generated always as identity primary key,
    event_id text,                         -- null where the entry as a whole cannot be read
    product text,
    received_at timestamptz,
    failed_at timestamptz not null default now(),
    reason text not null,                  -- names no value of the event
    payload bytea not null,
    digest bytea not null unique           -- of the payload
);

create view bonus_status as
select product,
    context ->> 'bonus_id' as bonus_id,
    case max(array_position(
        array['bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out'], event))
        when 1 then 'offered' when 2 then 'claimed' when 3 then 'completed' else 'cashed_out'
    end as state,
    coalesce(sum((context ->> 'cashout_amount')::numeric)
        filter (where event = 'bonus_cashed_out'), 0) as cashed_out
from events
where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out')
group by product, context ->> 'bonus_id';

-- By the UTC day on which the attempt ended.
create view deposit_attempts as
select product, (occurred_at at time zone 'UTC')::date as day, count(*) as attempts
from events
where event in ('deposit', 'deposit_failed')
group by product, (occurred_at at time zone 'UTC')::date;
