-- The segment that was counted in when a batch was read: with its number it tells one batch from
-- every other, whatever copies of the ledger there were. '': of a release before.
alter table drain_fence add column segment text not null default '';
