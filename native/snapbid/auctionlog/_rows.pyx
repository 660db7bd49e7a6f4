# cython: auto_pickle=False, autotestdict=False
"""A worker's rows, written straight into mapped chunks (`snapbid/auctionlog/layout.py`)."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

cdef extern from *:
    """
    #define SNAPBID_PUBLISH(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
    """
    void publish "SNAPBID_PUBLISH"(uint64_t *at, uint64_t value) nogil

cdef enum:
    MAGIC_SIZE = 8
    HEADER_SIZE = 128
    STRINGS = 12
    MOST_BYTES = 1024  # of a string; the rest is cut off
    BID = 0
    GAP = 8
    SITE = 1
    APP = 2
    DOOH = 3
    TEST = 1
    REPLAYED = 2
    LARGEST = 0x7fffffff  # of a size or a device type

cdef packed struct Header:
    uint8_t magic[8]
    uint64_t end
    uint64_t first
    uint64_t converted
    int64_t in_flight
    int64_t begun_ms
    int64_t lost
    int64_t lost_since_ms
    uint64_t closed
    uint8_t boot[16]

cdef packed struct Row:
    uint16_t size
    uint8_t kind
    uint8_t verdict
    uint8_t flags
    uint8_t inventory
    int16_t reason
    uint64_t sequence
    int64_t time_ms
    int64_t price
    int64_t cost
    int64_t sent
    double floor
    int32_t w
    int32_t h
    int32_t device_type
    uint16_t lengths[STRINGS]


cdef int32_t number_of(value) except -1:
    """Return a size or device type as stored in the log; 0 if it is absent or out of range."""
    if type(value) is not int or not 0 < value <= LARGEST:
        return 0
    return value


cdef object text_of(value):
    """Return an ASCII text unchanged, and any other text in UTF-8, with ? for unpaired surrogates.

    Returns None for a value that is not text.
    """
    if type(value) is not str:
        return None
    return value if value.isascii() else value.encode("utf-8", "replace")


cdef inline int64_t now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


@cython.no_gc_clear  # buffers are released in `close` and `__dealloc__`
@cython.final
cdef class RowWriter:
    cdef Py_buffer _buffer
    cdef Py_buffer _next
    cdef Header *_header
    cdef char *_base
    cdef uint64_t _end
    cdef uint64_t _size
    cdef uint64_t _sequence
    cdef int64_t _in_flight
    cdef int64_t _lost
    cdef int64_t _lost_since_ms
    cdef bint _has_next
    cdef readonly int64_t lost
    cdef object _on_full

    def __cinit__(self, on_full):
        self._header = NULL
        self._base = NULL
        self._end = self._size = 0
        self._sequence = 1
        self._in_flight = self._lost = self.lost = 0
        self._has_next = False
        self._on_full = on_full

    def __dealloc__(self):
        self._release()
        if self._has_next:
            PyBuffer_Release(&self._next)

    cdef void _release(self) noexcept:
        if self._header is not NULL:
            PyBuffer_Release(&self._buffer)
            self._header = NULL
            self._base = NULL

    @property
    def has_next(self):
        return self._has_next

    @property
    def in_flight(self):
        return self._in_flight

    def offer(self, chunk):
        cdef Py_buffer view
        if self._has_next:
            raise ValueError("a next chunk has already been offered")
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if view.len < HEADER_SIZE + 2 * (sizeof(Row) + STRINGS * MOST_BYTES):
            PyBuffer_Release(&view)
            raise ValueError("the chunk is too small")
        memcpy(&self._next, &view, sizeof(Py_buffer))
        self._has_next = True
        if self._header is NULL or self._lost:
            self._turn()

    cdef bint _turn(self) except -1:
        """Move on to the next chunk; return False if there is none."""
        cdef Header *header
        if not self._has_next:
            return False
        header = <Header *>self._next.buf
        header.first = self._sequence
        header.in_flight = self._in_flight
        header.begun_ms = 0 if self._header is NULL else self._header.begun_ms
        if self._header is not NULL:
            publish(&self._header.closed, 1)
            self._release()
        memcpy(&self._buffer, &self._next, sizeof(Py_buffer))
        memset(&self._next, 0, sizeof(Py_buffer))  # the reference has moved
        self._has_next = False
        self._header = header
        self._base = <char *>self._buffer.buf
        self._size = self._buffer.len
        self._end = HEADER_SIZE
        publish(&header.end, self._end)
        if self._lost:
            self._write_gap()
        self._on_full()
        return True

    cdef void _write_gap(self) noexcept:
        cdef Row *row = <Row *>(self._base + self._end)
        row.size = sizeof(Row)
        row.kind = GAP
        row.verdict = b"w"
        row.flags = 0
        row.reason = 0
        row.sequence = self._sequence
        row.time_ms = now_ms()
        row.price = self._lost_since_ms
        row.cost = self._lost
        row.sent = 0
        self._no_context(row)
        for number in range(STRINGS):
            row.lengths[number] = 0
        self._sequence += 1
        self._end += sizeof(Row)
        self._lost = 0
        publish(&self._header.end, self._end)

    cdef Row *_begin_row(self) except? NULL:
        """Return where the next row goes; NULL if it is lost."""
        if self._header is NULL or self._size - self._end < sizeof(Row) + STRINGS * MOST_BYTES:
            if not self._turn():
                if not self._lost:
                    self._lost_since_ms = now_ms()
                self._lost += 1
                self.lost += 1
                self._sequence += 1
                if self._header is not NULL:
                    self._header.lost_since_ms = self._lost_since_ms
                    self._header.lost = self._lost
                return NULL
        return <Row *>(self._base + self._end)

    cdef inline int _put(self, Row *row, int number, char **at, object text) except -1:
        """Append a string of a row; None counts as empty."""
        cdef const char *start
        cdef Py_ssize_t size
        if text is None:
            row.lengths[number] = 0
            return 0
        if type(text) is bytes:
            start, size = PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)
        else:
            start = PyUnicode_AsUTF8AndSize(text, &size)
        if size > MOST_BYTES:
            size = MOST_BYTES
        memcpy(at[0], start, size)
        at[0] += size
        row.lengths[number] = <uint16_t>size
        return 0

    cdef inline void _end_row(self, Row *row, char *at) noexcept:
        cdef Py_ssize_t size = at - <char *>row
        row.size = <uint16_t>size
        row.sequence = self._sequence
        self._sequence += 1
        self._end += size
        publish(&self._header.end, self._end)

    def begin(self, int64_t count=1):
        cdef int64_t now = now_ms()
        self._in_flight += count
        if self._header is not NULL:
            self._header.in_flight = self._in_flight
            self._header.begun_ms = now
        return now

    def end(self, int64_t count=1):
        self._in_flight -= count
        if self._header is not NULL:
            self._header.in_flight = self._in_flight

    cdef void _no_context(self, Row *row) noexcept:
        row.inventory, row.floor = 0, 0
        row.w = row.h = row.device_type = 0

    def bids(self, int64_t time_ms, source, request, list bids, currency, bint test=False):
        cdef Row *row
        cdef char *at
        cdef uint8_t inventory = 0
        cdef int32_t device_type = 0
        publication = country = system = None
        if request.site is not None:
            inventory, publication = SITE, text_of(request.site.domain)
        elif request.app is not None:
            inventory, publication = APP, text_of(request.app.bundle)
        elif request.dooh is not None:
            inventory = DOOH
        device = request.device
        if device is not None:
            device_type = number_of(device.devicetype)
            system = text_of(device.os)
            if device.geo is not None:
                country = text_of(device.geo.country)
        if country is None and request.user is not None and request.user.geo is not None:
            country = text_of(request.user.geo.country)
        imps = request.imp
        for bid in bids:
            row = self._begin_row()
            if row is NULL:
                continue
            template, cost = bid.template, bid.cost_nanos
            row.kind, row.verdict, row.reason = BID, 0, 0
            row.flags = TEST if test else 0
            row.time_ms = time_ms
            row.price = template.price_micros
            row.cost = row.price if cost is None else cost
            row.sent = template.sent_micros
            self._no_context(row)
            row.inventory, row.device_type = inventory, device_type
            at = <char *>row + sizeof(Row)
            self._put(row, 0, &at, source[0])
            self._put(row, 1, &at, source[1])
            self._put(row, 2, &at, request.id)
            self._put(row, 3, &at, bid.imp_id)
            self._put(row, 4, &at, template.campaign)
            self._put(row, 5, &at, template.creative)
            self._put(row, 6, &at, bid.deal)
            self._put(row, 7, &at, currency)
            self._put(row, 8, &at, publication)
            self._put(row, 9, &at, country)
            self._put(row, 10, &at, system)
            row.lengths[11] = 0
            for imp in imps:
                if imp.id == bid.imp_id:
                    self._put_impression(row, &at, imp)
                    break
            self._end_row(row, at)

    cdef int _put_impression(self, Row *row, char **at, imp) except -1:
        """Append the size and the floor that an impression asks for."""
        asked = imp.banner if imp.banner is not None else imp.video
        if asked is not None:
            if imp.banner is not None and asked.format:
                asked = asked.format[0]
            row.w, row.h = number_of(asked.w), number_of(asked.h)
        if imp.bidfloor is not None:
            row.floor = imp.bidfloor
            self._put(row, 11, at, text_of(imp.bidfloorcur) or "USD")
        return 0

    def notice(
        self, int64_t time_ms, int kind, verdict, int reason, auction_id, imp_id,
        bint replayed=False, ssp=None
    ):
        cdef Row *row = self._begin_row()
        cdef char *at
        cdef int number
        if row is NULL:
            return
        row.kind, row.verdict, row.reason = kind, ord(verdict), reason
        row.flags = REPLAYED if replayed else 0
        row.time_ms = time_ms
        row.price = row.cost = row.sent = 0
        self._no_context(row)
        at = <char *>row + sizeof(Row)
        for number in range(STRINGS):
            row.lengths[number] = 0
        self._put(row, 1, &at, ssp)
        self._put(row, 2, &at, auction_id)
        self._put(row, 3, &at, imp_id)
        self._end_row(row, at)

    def close(self):
        if self._header is not NULL:
            publish(&self._header.closed, 1 if self._in_flight == 0 and self._lost == 0 else 0)
        self._release()
        if self._has_next:
            PyBuffer_Release(&self._next)
            self._has_next = False
