"""Outcomes of bid requests; see _outcome.pyx."""

from snapbid.bidding._admission cimport AdmissionControl, SspShare
from snapbid.bidding._request_stats cimport RequestCounts
from snapbid.metrics._cells cimport Counter, Histogram

cdef class Outcome:
    cdef Counter _counter
    cdef RequestCounts _request_stats
    cdef AdmissionControl _admission
    cdef SspShare _share
    cdef Histogram _seconds
    cdef object _status

    cpdef int count(self) except -1
    cpdef int end(self, double seconds) except -1
