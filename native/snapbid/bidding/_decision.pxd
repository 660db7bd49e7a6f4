"""The decision on a bid request; see _decision.pyx."""

from libc.stdint cimport int64_t, uint32_t

from snapbid.bidding._bids cimport Bid, Template
from snapbid.catalog._matcher cimport Index, Query
from snapbid.catalog._reader cimport Reader

cdef class SnapshotCore:
    cdef readonly Reader lookups
    cdef readonly Index index
    cdef readonly dict exhausted
    cdef dict _canonical
    cdef dict _of_base, _of_overlay  # templates by `template_key`
    cdef uint32_t _overlaid

    cdef Template find(self, uint32_t rank, uint32_t creative)


cdef class Choice:
    cdef readonly object imp
    cdef readonly uint32_t rank, creative
    cdef readonly int deal
    cdef readonly double quantity


cdef class Decision:
    cdef readonly list choices
    cdef readonly Query query
    cdef readonly object last
    cdef readonly Reader lookups
    cdef readonly object pods


cdef class NoBid:
    cdef readonly object reason
    cdef readonly uint32_t undecided


cdef class Proposal:
    cdef readonly str auction_id
    cdef readonly list bids, choices
    cdef readonly Decision decision
    cdef readonly bint limited
    cdef readonly uint32_t undecided
    cdef readonly double processor_s


cdef class Decider:
    cdef object _pods_of, _quantity_of, _cost_of, _affordable, _unanswered
    cdef object _no_currency, _too_many, _cut_short, _long_id
    cdef double _searching, _templates

    cpdef object search(self, object request, str ssp, SnapshotCore snapshot, int64_t now_ms,
                        double left_s=*, double processor_s=*)
    cpdef object propose(self, object request, str ssp, SnapshotCore snapshot, int64_t now_ms,
                         double left_s=*, double processor_s=*)
    cpdef Bid bid_of(self, Choice choice, SnapshotCore snapshot, Decision decision)
    cdef Reader in_currency(self, Reader lookups, object request)
