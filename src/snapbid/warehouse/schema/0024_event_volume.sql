-- Events of a key are limited by their number, beside its requests.
alter table api_key add column events int not null default 60000  -- in a rolling minute
    constraint api_key_events check (events between 1024 and 100000000);
