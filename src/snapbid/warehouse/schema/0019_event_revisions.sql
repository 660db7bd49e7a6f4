-- Cash-outs of a bonus may be any number. Those that came before the event they follow are flagged
-- anew in pages (drain/sequences.py); a row says how far that is, and is gone once it is done.
create table event_revision (
    sequence bytea primary key,            -- that the cash-outs have in common, in event_ids
    bonus bytea not null,                  -- that the other events of the bonus have
    after text not null default '',        -- the last event_id of the pages that are done
    revised bigint not null default 0,     -- events of these pages
    at timestamptz not null default clock_timestamp()  -- of the last page: whose turn it is
);
create index event_revision_at on event_revision (at);

drop index event_ids_sequence;
create index event_ids_sequence on event_ids (sequence, event_id) where sequence is not null;

-- A hash index takes longer for each event of one id than for the one before. Ids may be longer than
-- a btree takes: their beginnings are enough.
drop index events_bonus;
drop index events_deposit;
create index events_bonus on events (left(context ->> 'bonus_id', 64))
    where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out');
create index events_deposit on events (left(context ->> 'transaction_id', 64))
    where event in ('deposit_initiated', 'deposit', 'deposit_failed');
