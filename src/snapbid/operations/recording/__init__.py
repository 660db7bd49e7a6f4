"""Records a sample of live bid requests, without personal data, for `snapbid load --replay`."""
