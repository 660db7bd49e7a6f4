-- Whether the notification URLs of an SSP's bids are signed; null and false: where
-- SNAPBID_SIGNED_NOTICES says so for all.
alter table ssp add column signed boolean;
