# cython: auto_pickle=False, autotestdict=False
"""How bid requests end, as `_outcome.pyi` describes it."""

cimport cython

@cython.final
cdef class Outcome:

    def __init__(self, Counter counter not None, RequestCounts request_stats not None, int status,
                 AdmissionControl admission not None, Lane lane not None,
                 Histogram seconds not None):
        self._counter, self._request_stats, self._status = counter, request_stats, status
        self._admission, self._lane, self._seconds = admission, lane, seconds

    cpdef int count(self) except -1:
        if self._counter is None:
            raise TypeError("an outcome needs its counter")
        self._counter.add(1)
        return self._request_stats.note(self._status)

    cpdef int end(self, double seconds) except -1:
        self.count()
        self._seconds.take(seconds)
        return self._admission.end(self._lane)
