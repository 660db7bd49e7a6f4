-- When a campaign first came to be: even pacing spreads its first day's budget from then on
-- (contract 3, Budgets). A campaign that is replaced keeps it.

alter table campaign add column created_at timestamptz;
alter table campaign disable trigger user;  -- nothing changes that anybody must hear of
update campaign set created_at = updated_at;
alter table campaign enable trigger user;
alter table campaign
    alter column created_at set default now(),
    alter column created_at set not null;
