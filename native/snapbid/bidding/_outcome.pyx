# cython: auto_pickle=False, autotestdict=False
"""How bid requests end, as `_outcome.pyi` describes it."""

cimport cython

@cython.final
cdef class Outcome:

    def __init__(self, Counter counter not None, RequestCounts sightings not None, int status,
                 AdmissionControl admission not None, Lane lane not None,
                 Histogram seconds not None):
        self._counter, self._sightings, self._status = counter, sightings, status
        self._admission, self._lane, self._seconds = admission, lane, seconds

    cpdef int count(self) except -1:
        if self._counter is None:
            raise TypeError("an outcome needs its counter")
        self._counter.add(1)
        return self._sightings.note(self._status)

    cpdef int end(self, double seconds) except -1:
        self.count()
        self._seconds.take(seconds)
        return self._admission.end(self._lane)
