# cython: auto_pickle=False, autotestdict=False
"""The state of a bid endpoint, as the bid path uses it; see `_endpoint.pyi`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact

from allowance cimport CLOCK_MONOTONIC, CLOCK_REALTIME, sb_clock
from snapbid.catalog._reader cimport *

cdef extern from *:
    """
    #include <string.h>
    static inline int sb_is_ascii(const char *text, Py_ssize_t size) {
        unsigned long long bits = 0, word;
        Py_ssize_t at = 0;
        for (; at + 8 <= size; at += 8) {
            memcpy(&word, text + at, 8);
            bits |= word;
        }
        for (; at < size; at++) bits |= (unsigned char)text[at];
        return (bits & 0x8080808080808080ULL) == 0;
    }
    """
    bint sb_is_ascii(const char *text, Py_ssize_t size)

cdef enum:
    NS_IN_MS = 1000000
    MOST_STARTS = 4096


cdef inline bint has_id(Reader reader, object imp) except -1:
    cdef object id = reader.get(reader.checked(imp, IMP), IMP_ID)
    return PyUnicode_CheckExact(id) and PyUnicode_GET_LENGTH(id) != 0


cdef class EndpointCore:

    def __init__(self, str ssp not None, int number, SnapshotCore snapshot not None, bidding,
                 RequestCounts request_stats not None, SspShare share not None,
                 Outcome bid_made not None, dict no_bids not None):
        self._ssp, self._number, self.snapshot = ssp, number, snapshot
        self._request_stats, self._share = request_stats, share
        self._bid_made, self._no_bids = bid_made, no_bids
        self._decider, self._admission = bidding.decider, bidding.admission
        self._writer, self._ids = bidding.bidder.writer, bidding.bidder.ids
        self._decoding, self._matching, self._committing = bidding.timings.steps
        self._max_bytes, self._processor_s = bidding.max_bytes, bidding.processor_s
        self._tmax_s = bidding.tmax_ms / 1000
        self._most_values, self._large = bidding.most_values, bidding.large
        self._gzip_from, self._gzip_to = bidding.gzip_from, bidding.gzip_to
        self._kept = ord(bidding.kept)
        self._ledger, self._log = bidding.ledger, bidding.log
        self._decode, self._recover = bidding.decode, bidding.recover
        self._check, self._body_deadline = bidding.check, bidding.body_deadline
        self._answer, self._no_content = bidding.answer, bidding.no_content
        self._late, self._overload = bidding.late, bidding.overload
        self._store_down = bidding.store_down
        self._starts = {}
        self._clock, self._timer = bidding.clock, bidding.timer

    def use(self, SnapshotCore snapshot not None):
        self.snapshot = snapshot

    def no_bid(self, reason):
        (<Outcome?>self._no_bids[reason]).count()
        return self._no_content

    cdef object decoded(self, bytes body):
        """Decode and check a request. Raises BadRequest."""
        cdef Reader reader = self.snapshot.lookups
        cdef object request, imps, id
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        if size > self._most_values or not sb_is_ascii(PyBytes_AS_STRING(body), size):
            return self._recover(body, None)
        try:
            request = self._decode(body)
        except Exception as error:
            return self._recover(body, error)
        reader.checked(request, BIDREQUEST)
        imps, id = reader.get(request, BIDREQUEST_IMP), reader.get(request, BIDREQUEST_ID)
        if not (PyList_CheckExact(imps) and PyList_GET_SIZE(imps) == 1
                and PyUnicode_CheckExact(id) and PyUnicode_GET_LENGTH(id)
                and has_id(reader, (<list>imps)[0])):
            self._check(request, body)
        return request

    cdef object answer(self, bytes body):
        """Build a 200 answer."""
        cdef object length = PyBytes_GET_SIZE(body), made
        cdef PyObject *start = PyDict_GetItem(self._starts, length)
        if start is not NULL:
            return self._answer(<object>start, body)
        made = self.plain_answer(body)
        if len(self._starts) >= MOST_STARTS:
            self._starts.clear()
        self._starts[length] = made.start
        return made

    cdef int64_t now_ms(self) except -1:
        return sb_clock(CLOCK_REALTIME) // NS_IN_MS if self._clock is None else self._clock()

    cdef double seconds(self) except? -1:
        """Return the time of `time.perf_counter`."""
        return sb_clock(CLOCK_MONOTONIC) * 1e-9 if self._timer is None else self._timer()
