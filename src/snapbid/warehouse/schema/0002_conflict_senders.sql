-- The sender of each conflicting payload, by which `snapbid forget` finds it. Earlier rows
-- have none: their sender is unknown.
alter table event_conflicts
    add column client_user_id text,
    add column anonymous_id text,
    add column click_id text;
