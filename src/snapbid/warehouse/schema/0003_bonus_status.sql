-- Leaves out the emptied events of forgotten persons, which have no bonus any more.
create or replace view bonus_status as
select product,
    context ->> 'bonus_id' as bonus_id,
    case max(array_position(
        array['bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out'], event))
        when 1 then 'offered' when 2 then 'claimed' when 3 then 'completed' else 'cashed_out'
    end as state,
    coalesce(sum((context ->> 'cashout_amount')::numeric)
        filter (where event = 'bonus_cashed_out'), 0) as cashed_out
from events
where event in ('bonus_offered', 'bonus_claimed', 'bonus_completed', 'bonus_cashed_out')
    and context ? 'bonus_id'
group by product, context ->> 'bonus_id';
