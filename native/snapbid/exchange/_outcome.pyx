# cython: auto_pickle=False, autotestdict=False
"""How bid requests end, as `_outcome.pyi` describes it."""

cimport cython

from snapbid.exchange._admission cimport AdmissionControl, Lane
from snapbid.exchange._sightings cimport RequestCounts
from snapbid.metrics._cells cimport Counter, Histogram


@cython.final
cdef class Outcome:
    cdef Counter _counter
    cdef RequestCounts _sightings
    cdef AdmissionControl _admission
    cdef Lane _lane
    cdef Histogram _seconds
    cdef object _status

    def __init__(self, Counter counter not None, RequestCounts sightings not None, int status,
                 AdmissionControl admission not None, Lane lane not None,
                 Histogram seconds not None):
        self._counter, self._sightings, self._status = counter, sightings, status
        self._admission, self._lane, self._seconds = admission, lane, seconds

    cdef int _count(self) except -1:
        if self._counter is None:
            raise TypeError("an outcome needs its counter")
        self._counter.add(1)
        return self._sightings.note(self._status)

    def count(self):
        self._count()

    def end(self, double seconds):
        self._count()
        self._seconds.take(seconds)
        self._admission.end(self._lane)
