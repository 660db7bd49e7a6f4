-- The normalised form of a campaign's document, as the import has made it under a version of the
-- rules. Where it is null, or of another version, the document is checked when it is loaded.

alter table campaign
    add column normalised bytea,
    add column rules int,
    add constraint campaign_rules_of_normalised
        check ((normalised is null) = (rules is null)),
    -- Document and form of a usual campaign together are over 2 kB, from which on PostgreSQL would
    -- compress them.
    set (toast_tuple_target = 8160);

create or replace function campaign_stamp() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        new.status := coalesce(new.status, new.document ->> 'status', 'active');
    elsif new.status is not distinct from old.status
        and (new.document ->> 'status') is distinct from (old.document ->> 'status') then
        new.status := coalesce(new.document ->> 'status', 'active');
    end if;
    new.document := new.document || jsonb_build_object('status', new.status);
    if tg_op = 'UPDATE' then
        if (new.normalised, new.rules) is not distinct from (old.normalised, old.rules) then
            -- The status that holds is the column, so a pause keeps the form.
            if new.document - 'status' <> old.document - 'status' then
                new.normalised := null;
                new.rules := null;
            end if;
        elsif (new.id, new.document, new.status) = (old.id, old.document, old.status) then
            return new;  -- the campaign is the same as before, so no reader needs it again
        end if;
    end if;
    new.updated_at := now();
    new.revision := nextval('campaign_revision');
    return new;
end $$;
