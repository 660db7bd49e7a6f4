-- A suspension ends when the creative that was rejected is changed, renamed or deleted, by an import
-- or by plain SQL.

-- A changed creative's losses count only after a minute: until then they may be of its former state,
-- counted by the ledger but not yet here, or of a bid that a worker made meanwhile.
alter table creative_suspension add column counts_from timestamptz not null default now();

create index creative_suspension_campaign on creative_suspension (campaign);

-- What an SSP judges: a creative, and what its bids say of the campaign. Null if there is none.
create function creative_judged(document jsonb, creative text) returns jsonb
language sql immutable as $$
    select jsonb_build_array(found, document -> 'advertiser', document -> 'categories',
                             document -> 'cattax', document -> 'dsa')
    from jsonb_path_query_array(document, '$.creatives[*] ? (@.id == $id)',
                                jsonb_build_object('id', creative)) found
    where found <> '[]'
$$;

create function campaign_end_suspensions() returns trigger language plpgsql as $$
begin
    with judged as (
        select s.ssp, s.campaign, s.creative, creative_judged(o.document, s.creative) as former,
            creative_judged(c.document, s.creative) as present
        from old_campaign o
        join creative_suspension s on s.campaign = o.id
        left join campaign c on c.id = o.id
    ),
    gone as (
        delete from creative_suspension s using judged j
        where j.present is null and (s.ssp, s.campaign, s.creative) = (j.ssp, j.campaign, j.creative)
    )
    update creative_suspension s set losses = 0, bids = 0, since = null, until = null,
        counts_from = clock_timestamp() + interval '1 minute'
    from judged j
    where j.present is distinct from j.former and j.present is not null
        and (s.ssp, s.campaign, s.creative) = (j.ssp, j.campaign, j.creative);
    return null;
end $$;

create function campaign_end_all_suspensions() returns trigger language plpgsql as $$
begin
    delete from creative_suspension;
    return null;
end $$;

create trigger campaign_6_suspensions_changed after update on campaign
    referencing old table as old_campaign
    for each statement execute function campaign_end_suspensions();
create trigger campaign_6_suspensions_deleted after delete on campaign
    referencing old table as old_campaign
    for each statement execute function campaign_end_suspensions();
create trigger campaign_6_suspensions_truncated after truncate on campaign
    for each statement execute function campaign_end_all_suspensions();

delete from creative_suspension s where not exists (
    select from campaign c
    where c.id = s.campaign and creative_judged(c.document, s.creative) is not null);

-- Takes the turn of writers of SSPs and campaigns until commit, unless another has it.
create function catalog_try_lock() returns boolean language sql as $$
    select pg_try_advisory_xact_lock(7165064744911531884)
$$;
