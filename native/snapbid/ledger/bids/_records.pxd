"""Digests by which the ledger knows bids; see _records.pyx."""

cdef bytes digest_pair(bytes auction_id, bytes imp_id)
