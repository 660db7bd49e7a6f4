-- Whether the notification URLs of an SSP's bids are signed, whatever SNAPBID_SIGNED_NOTICES says.
alter table ssp add column signed boolean not null default false;
