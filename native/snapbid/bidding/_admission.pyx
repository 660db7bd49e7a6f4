# cython: auto_pickle=False, autotestdict=False
"""Admission control; see `_admission.pyi`."""

cimport cython

cdef double _INTERVAL_S = 0.05
cdef double _TARGET_S = 0.03

INTERVAL_S = _INTERVAL_S
TARGET_S = _TARGET_S
FIRST = 256
FEWEST = 64
MOST = 4096


@cython.final
cdef class SspShare:
    pass


@cython.final
cdef class AdmissionControl:

    def __init__(self, double now, int first=FIRST, int fewest=FEWEST, int most=MOST):
        self.limit = self._first_limit = first
        self._least_limit, self._most_limit = fewest, most
        self.under_way = 0
        self.waited_s = 0.0
        self._limit_per_ssp = first
        self._shares = {}
        self._began = self._began_before = now
        self._until = now + _INTERVAL_S
        self._completed = self._fewest = 0
        self._least_wait_s = _INTERVAL_S

    def share(self, str ssp not None):
        return self._shares.setdefault(ssp, SspShare())

    cpdef bint enter(self, SspShare share, double now) except -1:
        if share is None:
            raise TypeError("a request needs the share of an SSP")
        if now >= self._until:
            self._begin(now)
        if self.under_way >= self.limit and share.under_way >= self._limit_per_ssp:
            return False
        self.under_way += 1
        share.under_way += 1
        share.reading += 1
        return True

    cpdef int has_body(self, SspShare share, double entered, double now) except -1:
        if share is None:
            raise TypeError("a request needs the share of an SSP")
        if entered >= self._began:
            share.reading -= 1
        elif entered >= self._began_before:
            share.reading_before -= 1
        else:
            self.under_way += 1
            share.under_way += 1
        if now - entered < self._least_wait_s:
            self._least_wait_s = now - entered
        return 0

    def leave(self, SspShare share not None):
        self.end(share)

    cdef int end(self, SspShare share) except -1:
        self._completed += 1
        share.under_way -= 1
        self.under_way -= 1
        if self.under_way < self._fewest:
            self._fewest = self.under_way
        return 0

    cdef int _begin(self, double now) except -1:
        """Begin an interval, its limit set by the requests that the last one completed."""
        cdef SspShare share
        for share in self._shares.values():
            share.under_way -= share.reading_before
            self.under_way -= share.reading_before
            share.reading_before, share.reading = share.reading, 0
        self._adapt(now - self._began)
        self._began_before, self._began = self._began, now
        self._until = now + _INTERVAL_S
        self._completed = 0
        self._fewest = self.under_way
        self._least_wait_s = _INTERVAL_S
        return 0

    cdef int _adapt(self, double seconds) except -1:
        """Set the limit: an interval that was busy throughout shows the worker's capacity."""
        cdef SspShare share
        cdef int busy = 0
        cdef double left_s
        self.waited_s = self._least_wait_s if self._completed else 0.0
        if self._fewest >= self._least_limit:
            left_s = max(_TARGET_S - self.waited_s, 0.0)
            self.limit = <int>(self._completed / seconds * left_s)
            self.limit = min(max(self.limit, self._least_limit), self._most_limit)
        else:
            self.limit = max(self.limit, self._first_limit)
        for share in self._shares.values():
            busy += share.under_way > 0
        self._limit_per_ssp = self.limit / <double>max(busy, 1)
        return 0
