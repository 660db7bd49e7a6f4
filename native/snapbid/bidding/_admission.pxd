"""Admission control; see _admission.pyx."""

cdef class SspShare:
    cdef readonly int under_way
    cdef readonly int reading
    cdef readonly int reading_before


cdef class AdmissionControl:
    cdef readonly int limit
    cdef readonly int under_way
    cdef readonly double waited_s
    cdef int _first_limit, _least_limit, _most_limit
    cdef double _limit_per_ssp
    cdef dict _shares
    cdef double _began, _began_before, _until
    cdef int _completed
    cdef int _fewest  # fewest requests in flight at once, in this interval
    cdef double _least_wait_s

    cpdef bint enter(self, SspShare share, double now) except -1
    cpdef int has_body(self, SspShare share, double entered, double now) except -1
    cdef int end(self, SspShare share) except -1
    cdef int _begin(self, double now) except -1
    cdef int _adapt(self, double seconds) except -1
