# cython: auto_pickle=False, autotestdict=False
"""Admission control, as `_admission.pyi` describes it."""

cimport cython

cdef double _INTERVAL_S = 0.05
cdef double _TARGET_S = 0.03

INTERVAL_S = _INTERVAL_S
TARGET_S = _TARGET_S
FIRST = 256
FEWEST = 64
MOST = 4096


@cython.final
cdef class Lane:
    pass


@cython.final
cdef class AdmissionControl:

    def __init__(self, double now, int first=FIRST, int fewest=FEWEST, int most=MOST):
        self.limit = self._first_limit = first
        self._least_limit, self._most_limit = fewest, most
        self.under_way = 0
        self.waited_s = 0.0
        self._share = first
        self._lanes = {}
        self._began = self._began_before = now
        self._until = now + _INTERVAL_S
        self._completed = self._fewest = 0
        self._least_wait_s = _INTERVAL_S

    def lane(self, str ssp not None):
        return self._lanes.setdefault(ssp, Lane())

    cpdef bint enter(self, Lane lane, double now) except -1:
        if lane is None:
            raise TypeError("a request has a lane")
        if now >= self._until:
            self._begin(now)
        if self.under_way >= self.limit and lane.under_way >= self._share:
            return False
        self.under_way += 1
        lane.under_way += 1
        lane.reading += 1
        return True

    cpdef int has_body(self, Lane lane, double entered, double now) except -1:
        if lane is None:
            raise TypeError("a request has a lane")
        if entered >= self._began:
            lane.reading -= 1
        elif entered >= self._began_before:
            lane.reading_before -= 1
        else:
            self.under_way += 1
            lane.under_way += 1
        if now - entered < self._least_wait_s:
            self._least_wait_s = now - entered
        return 0

    def leave(self, Lane lane not None):
        self.end(lane)

    cdef int end(self, Lane lane) except -1:
        self._completed += 1
        lane.under_way -= 1
        self.under_way -= 1
        if self.under_way < self._fewest:
            self._fewest = self.under_way
        return 0

    cdef int _begin(self, double now) except -1:
        """Begin an interval, its limit set by what the last one completed."""
        cdef Lane lane
        for lane in self._lanes.values():
            lane.under_way -= lane.reading_before
            self.under_way -= lane.reading_before
            lane.reading_before, lane.reading = lane.reading, 0
        self._adapt(now - self._began)
        self._began_before, self._began = self._began, now
        self._until = now + _INTERVAL_S
        self._completed = 0
        self._fewest = self.under_way
        self._least_wait_s = _INTERVAL_S
        return 0

    cdef int _adapt(self, double seconds) except -1:
        """Set the limit: an interval that was busy throughout shows the worker's capacity."""
        cdef Lane lane
        cdef int busy = 0
        cdef double left_s
        self.waited_s = self._least_wait_s if self._completed else 0.0
        if self._fewest >= self._least_limit:
            left_s = max(_TARGET_S - self.waited_s, 0.0)
            self.limit = <int>(self._completed / seconds * left_s)
            self.limit = min(max(self.limit, self._least_limit), self._most_limit)
        else:
            self.limit = max(self.limit, self._first_limit)
        for lane in self._lanes.values():
            busy += lane.under_way > 0
        self._share = self.limit / <double>max(busy, 1)
        return 0
