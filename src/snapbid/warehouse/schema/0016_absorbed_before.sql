-- A counter's row keeps what it was before it was raised last, so that the difference needs no look
-- beforehand. Half of a page is left free: a round may raise all of its rows in place.
alter table drain_absorbed add column before bigint, set (fillfactor = 45);
