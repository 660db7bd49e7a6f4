-- Who may send as an SSP: addresses (none: any) and requests per second over all workers (null: any).

alter table ssp
    add column allow cidr[] not null default '{}'
        constraint ssp_allow_is_named check (array_position(allow, null) is null),
    add column qps int
        constraint ssp_qps_is_in_range check (qps between 1 and 1000000);
