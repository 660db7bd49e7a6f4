"""Request statistics of an SSP; see _request_stats.pyx."""

from snapbid.catalog._reader cimport Reader

cdef class RequestCounts:
    cdef readonly int requests, tests, country, strange_country, ua, ip, ipv6
    cdef readonly dict statuses
    cdef readonly object answers
    cdef object _note
    cdef int _wanted  # samples to take before `take_samples`
    cdef list _samples

    cdef int note(self, object status) except -1
    cdef int sample(self, tuple sample) except -1
    cdef bint count(self, Reader reader, object request) except -1
