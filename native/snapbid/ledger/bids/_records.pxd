"""Digests that identify bids in the ledger; see `_records.pyx`."""

cdef bytes digest_pair(bytes auction_id, bytes imp_id)
