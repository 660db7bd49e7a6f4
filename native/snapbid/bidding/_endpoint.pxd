"""The state of a bid endpoint, as the bid path uses it; see _endpoint.pyx."""

from libc.stdint cimport int64_t

from snapbid.bidding._admission cimport AdmissionControl, SspShare
from snapbid.bidding._decision cimport Decider, SnapshotCore
from snapbid.bidding._outcome cimport Outcome
from snapbid.bidding._response cimport BidIds, ResponseWriter
from snapbid.bidding._request_stats cimport RequestCounts
from snapbid.metrics._cells cimport Histogram

cdef class EndpointCore:
    cdef readonly SnapshotCore snapshot
    cdef str _ssp
    cdef object _number
    cdef Decider _decider
    cdef ResponseWriter _writer
    cdef BidIds _ids
    cdef AdmissionControl _admission
    cdef SspShare _share
    cdef RequestCounts _request_stats
    cdef Outcome _bid_made
    cdef dict _no_bids  # outcomes by reason
    cdef Histogram _decoding, _matching, _committing
    cdef unsigned int _calls
    cdef Py_ssize_t _max_bytes, _most_values, _large, _gzip_from, _gzip_to
    cdef double _tmax_s, _processor_s
    cdef unsigned char _kept
    cdef object _ledger, _log
    cdef object _decode, _recover, _check, _body_deadline, _answer, _no_content
    cdef object _late, _overload, _store_down
    cdef dict _starts  # start messages of answers, by the length of the body
    cdef object _clock, _timer  # epoch ms, and seconds; None: the system's

    cdef object decoded(self, bytes body)
    cdef object answer(self, bytes body)
    cdef int64_t now_ms(self) except -1
    cdef double seconds(self) except? -1
