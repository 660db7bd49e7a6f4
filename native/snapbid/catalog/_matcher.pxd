"""An index of campaigns and the search for one request; see _matcher.pyx."""

from libc.stdint cimport int64_t, uint32_t

from allowance cimport sb_allowance
from snapbid.catalog._arrangement cimport Arrangement
from snapbid.catalog._impression cimport ImpressionReading
from snapbid.catalog._layer cimport Layer
from snapbid.catalog._reader cimport Reader
from snapbid.catalog._request cimport Asker, Interest, RequestReading
from snapbid.catalog._search cimport LayerSearch, Match

cdef class Workspace:
    cdef RequestReading request
    cdef ImpressionReading impression
    cdef LayerSearch base
    cdef LayerSearch over  # or None

    cdef int forget(self) except -1


cdef class Index:
    cdef Layer base
    cdef Layer over  # or None
    cdef Interest interest
    cdef Workspace spare  # or None

    cdef Layer layer(self, uint32_t *rank)
    cdef Query start(self, Reader reader, object request, str ssp, str canonical, int64_t now_ms,
                     double left_s, double processor_s)


cdef class Query:
    cdef Index index
    cdef Workspace workspace
    cdef object imp
    cdef sb_allowance allowance  # the time that it may take
    cdef readonly uint32_t undecided  # impressions that were not decided in time

    cdef int take_request(self) except -1
    cdef int take_impression(self) except -1
    cdef void stop(self) noexcept
    cpdef bint impression(self, object imp, list rivals=*) except -1
    cpdef int allow(self, double left_s, double processor_s) except -1
    cpdef bint has_time(self) except -1
    cdef bint take_next(self, Match *best) except -1
