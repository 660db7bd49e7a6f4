"""What an SSP sends; see _sightings.pyx."""

cdef class RequestCounts:
    cdef readonly int requests, tests, country, ua, ip, ipv6
    cdef readonly dict statuses
    cdef readonly object answers
    cdef object _note

    cdef int note(self, object status) except -1
