# cython: auto_pickle=False, autotestdict=False
"""Request statistics of an SSP; see `_request_stats.pyi`."""

from collections import deque

from snapbid.catalog._reader cimport *


cdef inline bint is_stated(object text) noexcept:
    """Return whether a field has a value: it is present, and neither empty text nor 0."""
    return is_given(text) and not is_zero(text)


cdef class RequestCounts:

    def __init__(self, int kept, int sampled=0):
        self._wanted, self._samples = sampled, []
        self.answers = deque(maxlen=kept)
        self._note = self.answers.append
        self.clear()

    def clear(self):
        self.requests = self.tests = self.country = self.strange_country = 0
        self.ua = self.ip = self.ipv6 = 0
        self.statuses = {}
        self.answers.clear()

    cdef bint count(self, Reader reader, object request) except -1:
        """Count the fields that the go-live checklist examines; return whether it is a test
        request.
        """
        cdef object device = reader.child(request, BIDREQUEST_DEVICE, DEVICE), geo, country
        self.requests += 1
        if device is not None:
            geo = reader.child(device, DEVICE_GEO, GEO)
            if geo is not None:
                country = reader.get(geo, GEO_COUNTRY)
                if is_stated(country):
                    if recall(reader.countries, text_of(country)) is None:
                        self.strange_country += 1
                    else:
                        self.country += 1
            if is_stated(reader.get(device, DEVICE_UA)):
                self.ua += 1
            if is_stated(reader.get(device, DEVICE_IP)):
                self.ip += 1
            elif is_stated(reader.get(device, DEVICE_IPV6)):
                self.ipv6 += 1
        if is_one(reader.get(request, BIDREQUEST_TEST)):
            self.tests += 1
            return True
        return False

    cdef int sample(self, tuple sample) except -1:
        self._wanted -= 1
        self._samples.append(sample)
        return 0

    def take_samples(self, int wanted):
        samples, self._samples, self._wanted = self._samples, [], wanted
        return samples

    def answered(self, int status):
        self.note(status)

    cdef int note(self, object status) except -1:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self._note(status)
        return 0
