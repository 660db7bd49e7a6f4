# cython: auto_pickle=False, autotestdict=False
"""Outcomes of bid requests; see `_outcome.pyi`."""

cimport cython

@cython.final
cdef class Outcome:

    def __init__(self, Counter counter not None, RequestCounts request_stats not None, int status,
                 AdmissionControl admission not None, SspShare share not None,
                 Histogram seconds not None):
        self._counter, self._request_stats, self._status = counter, request_stats, status
        self._admission, self._share, self._seconds = admission, share, seconds

    cpdef int count(self) except -1:
        if self._counter is None:
            raise TypeError("an outcome needs its counter")
        self._counter.add(1)
        return self._request_stats.note(self._status)

    cpdef int end(self, double seconds) except -1:
        self.count()
        self._seconds.take(seconds)
        return self._admission.end(self._share)
