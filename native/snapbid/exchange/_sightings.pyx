# cython: auto_pickle=False, autotestdict=False
"""The counts of `snapbid/exchange/sightings.py`."""

from collections import deque


cdef class RequestCounts:

    def __init__(self, int kept):
        self.answers = deque(maxlen=kept)
        self._note = self.answers.append
        self.clear()

    def clear(self):
        self.requests = self.tests = self.country = self.ua = self.ip = self.ipv6 = 0
        self.statuses = {}
        self.answers.clear()

    def count(self, request):
        cdef object device = request.device, geo
        self.requests += 1
        if device is not None:
            geo = device.geo
            if geo is not None and geo.country:
                self.country += 1
            if device.ua:
                self.ua += 1
            if device.ip:
                self.ip += 1
            elif device.ipv6:
                self.ipv6 += 1
        if request.test == 1:
            self.tests += 1
            return True
        return False

    def answered(self, int status):
        self.note(status)

    cdef int note(self, object status) except -1:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self._note(status)
        return 0
