-- Who may send as an SSP: addresses (none: any) and requests per second over all workers (null: any).

alter table ssp
    add column allow cidr[] not null default '{}'
        constraint ssp_allow_is_named check (array_position(allow, null) is null),
    add column qps int
        constraint ssp_qps_is_in_range check (qps between 1 and 1000000);

-- As before, but null and an empty list say as little as a field that is not there.
create or replace function audit_difference(before jsonb, after jsonb) returns jsonb
language sql immutable as $$
    select jsonb_object_agg(
        field,
        case when length(coalesce(before ->> field, '')) + length(coalesce(after ->> field, '')) <= 200
             then jsonb_build_array(before -> field, after -> field) end)
    from jsonb_object_keys(coalesce(before, '{}') || coalesce(after, '{}')) field
    where nullif(nullif(before -> field, 'null'), '[]')
        is distinct from nullif(nullif(after -> field, 'null'), '[]')
$$;
