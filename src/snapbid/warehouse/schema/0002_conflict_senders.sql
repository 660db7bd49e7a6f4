-- The sender of each conflicting payload, by which `snapbid forget` finds it. Rows from before have
-- none: whose they are is unknown.
alter table event_conflicts
    add column client_user_id text,
    add column anonymous_id text,
    add column click_id text;
