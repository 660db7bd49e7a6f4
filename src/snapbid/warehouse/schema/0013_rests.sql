-- Creatives that rest: an SSP keeps rejecting them for what they are (contract 11).

-- What the drain has counted of such losses, until it is added up in creative_rest.
create table creative_rejection (
    ssp text not null,                 -- the canonical id
    campaign text not null,
    mark int not null,                 -- of the creative, in the ledger's records (match/rests.py)
    reason int not null,               -- OpenRTB 2.5, 5.25: 200 to 213
    losses bigint not null
);

-- The creatives that an SSP has rejected of late. One with `until` in the future rests: it is not
-- offered to this SSP. To delete its row ends that.
create table creative_rest (
    ssp text not null,                 -- the canonical id
    campaign text not null,
    creative text not null,
    reason int not null,               -- of the last loss that was counted
    losses bigint not null,
    counted_at timestamptz not null default now(),
    since timestamptz,
    until timestamptz,
    primary key (ssp, campaign, creative),
    constraint creative_rest_is_a_span check ((since is null) = (until is null))
);

create trigger creative_rest_announce after insert or update or delete or truncate on creative_rest
    for each statement execute function catalog_announce();

alter table audit drop constraint audit_kind,
    add constraint audit_kind check (kind in (
        'ssp', 'campaign', 'product', 'key', 'token', 'creative'));

-- A rest that begins, and one that ends before its time.
create function audit_rest() returns trigger language plpgsql as $$
begin
    if tg_op <> 'DELETE' and new.until > now()
        and (tg_op = 'INSERT' or old.until is null or old.until <= now()) then
        insert into audit (kind, object, action, detail) values (
            'creative', new.campaign, 'rested', jsonb_build_object(
                'creative', jsonb_build_array(null, new.creative),
                'ssp', jsonb_build_array(null, new.ssp),
                'reason', jsonb_build_array(null, new.reason)));
    elsif tg_op <> 'INSERT' and old.until > now()
        and (tg_op = 'DELETE' or new.until is null or new.until <= now()) then
        insert into audit (kind, object, action, detail) values (
            'creative', old.campaign, 'resumed', jsonb_build_object(
                'creative', jsonb_build_array(old.creative, null),
                'ssp', jsonb_build_array(old.ssp, null),
                'reason', jsonb_build_array(old.reason, null)));
    end if;
    return null;
end $$;

create trigger creative_rest_audit after insert or update or delete on creative_rest
    for each row execute function audit_rest();
create trigger creative_rest_audit_all before truncate on creative_rest
    for each statement execute function audit_truncate('creative');
