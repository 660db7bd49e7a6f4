"""A sample of live bid requests, without the people in it, for `snapbid load --replay`."""
