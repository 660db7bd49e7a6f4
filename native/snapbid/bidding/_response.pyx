# cython: auto_pickle=False, autotestdict=False
"""Bids, and responses written into one buffer; see `_response.pyi`."""

from urllib.parse import quote

from msgspec import json as msgspec_json

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from snapbid.ledger.bids._records cimport digest_pair

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const char *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef extern from "click.h" nogil:
    enum: SB_PERSON_KEY, SB_CLICK_SIZE
    void sb_click_id(char *out, const char *keys, int version_and_key, const char *bought,
                     uint32_t descriptor, uint32_t time_s, const char *auction, uint64_t person)

cdef enum:
    FIRST = 4096  # bytes of the buffer
    KEPT = 65536  # a longer one is freed after use
    MAX_NUMBER = 20  # digits
    VERSION = 1  # of click ids
    BOUGHT = 8  # bytes that name campaign and creative

cdef unsigned char _character
cdef bint[256] UNRESERVED  # unescaped in a query value (RFC 3986, 2.3), and in JSON, too
for _character in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~-":
    UNRESERVED[_character] = True

cdef bytes _EMPTY = b""
cdef const char *HEXADECIMAL = b"0123456789abcdef"


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Template:

    def __init__(self, uint64_t number, int64_t price_micros, bytes seat not None,
                 tuple pieces not None, bytes values not None, limits=None, str campaign not None="",
                 str creative not None="", int64_t sent_micros=0, bytes click not None=b""):
        cdef Py_ssize_t index
        if len(pieces) != PyBytes_GET_SIZE(values) + 1:
            raise ValueError("there must be one more piece than values")
        for index in range(PyBytes_GET_SIZE(values)):
            if <unsigned char>PyBytes_AS_STRING(values)[index] >= N_VALUES:
                raise ValueError("values must be indexes into VALUES")
        for piece in pieces:
            if not PyBytes_CheckExact(piece):
                raise TypeError("pieces must be bytes")
        self.number, self.price_micros, self.sent_micros = number, price_micros, sent_micros
        self.seat, self.pieces, self.values = seat, pieces, values
        self.limits, self.campaign, self.creative = limits, campaign, creative
        if CLICK_ID in values and len(click) != BOUGHT:
            raise ValueError("click must name a campaign and a creative")
        self.click = click


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class Bid:

    def __init__(self, str imp_id not None, Template template not None, str deal,
                 cost_nanos=None):
        self.imp_id, self.template, self.deal = imp_id, template, deal
        self.cost_nanos = cost_nanos

    def __repr__(self):
        return f"Bid({self.imp_id!r}, {self.template!r}, {self.deal!r}, {self.cost_nanos!r})"

    def __eq__(self, other):
        if type(other) is not Bid:
            return NotImplemented
        return (self.imp_id, self.template, self.deal, self.cost_nanos) == (
            (<Bid>other).imp_id, (<Bid>other).template, (<Bid>other).deal,
            (<Bid>other).cost_nanos)


def ledger_bids(bids):
    return as_ledger_bids(list(bids))


@cython.final
cdef class ClickStamp:

    cdef int write(self, char *out, bytes bought, str auction_id, str imp_id) except -1:
        cdef bytes named = b"\0\0\0\0\0\0\0\0"
        if self._names_auction:
            named = digest_pair(auction_id.encode(), imp_id.encode())
        sb_click_id(out, PyBytes_AS_STRING(self._keys), VERSION << 4 | self._key,
                    PyBytes_AS_STRING(bought), self._descriptor, self._time_s,
                    PyBytes_AS_STRING(named), self._person)
        return 0


@cython.final
cdef class ClickSigner:

    def __init__(self, int number, bytes keys not None, bytes persons not None):
        if len(keys) != 3 * SB_PERSON_KEY or len(persons) != SB_PERSON_KEY:
            raise ValueError(f"there must be 3 keys and 1 of {SB_PERSON_KEY} bytes")
        self._number, self._keys, self.persons = number, keys, persons

    cpdef ClickStamp stamp(self, uint32_t descriptor, int64_t now_ms, bint names_auction,
                           int64_t person):
        cdef ClickStamp stamp = ClickStamp.__new__(ClickStamp)
        stamp._key, stamp._keys = self._number, self._keys
        stamp._descriptor, stamp._time_s = descriptor, <uint32_t>(now_ms // 1000)
        stamp._names_auction, stamp._person = names_auction, <uint64_t>person
        return stamp


@cython.final
cdef class BidIds:

    def __cinit__(self, bytes process not None):
        self._process, self._number = process, 0

    cpdef bytes next(self):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self._process), digits = 1
        cdef bytes id
        cdef char *at
        cdef uint64_t number
        self._number += 1
        number = self._number
        while digits < 16 and number >> 4 * digits:
            digits += 1
        id = PyBytes_FromStringAndSize(NULL, size + 1 + digits)
        at = PyBytes_AS_STRING(id)
        memcpy(at, PyBytes_AS_STRING(self._process), size)
        at[size] = b"-"
        while digits:
            at[size + digits] = HEXADECIMAL[number & 15]
            number >>= 4
            digits -= 1
        return id


@cython.final
cdef class _Buffer:

    def __dealloc__(self):
        PyMem_Free(self.text)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = self.capacity or FIRST
        cdef char *text
        while capacity < self.size + more:
            capacity *= 2
        text = <char *>PyMem_Realloc(self.text, capacity)
        if text is NULL:
            raise MemoryError
        self.text, self.capacity = text, capacity
        return 0

    cdef inline int put(self, const char *text, Py_ssize_t size) except -1:
        if size > self.capacity - self.size:
            self.reserve(size)
        memcpy(self.text + self.size, text, size)
        self.size += size
        return 0

    cdef inline int add(self, bytes text) except -1:
        if text is None:
            raise TypeError("pieces must be bytes")
        return self.put(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    cdef int add_number(self, Py_ssize_t number) except -1:
        """Add a non-negative number."""
        cdef char[MAX_NUMBER] digits
        cdef int at = MAX_NUMBER
        while True:
            at -= 1
            digits[at] = c'0' + number % 10
            number //= 10
            if number == 0:
                return self.put(digits + at, MAX_NUMBER - at)

    cdef int add_json(self, Identifier *id) except -1:
        if id.json is not NULL:
            return self.put(id.json, id.json_size)
        self.put(b'"', 1)
        self.put(id.value, id.size)
        return self.put(b'"', 1)

    cdef int add_click(self, ClickStamp click, bytes bought, str auction_id, str imp_id) except -1:
        """Add a click id, or as many dashes if there is no stamp."""
        cdef char[SB_CLICK_SIZE] id
        if click is None:
            memset(id, c'-', SB_CLICK_SIZE)
        else:
            click.write(id, bought, auction_id, imp_id)
        return self.put(id, SB_CLICK_SIZE)

    cdef bytes since(self, Py_ssize_t start):
        """Remove and return everything written from `start` on."""
        cdef bytes text = PyBytes_FromStringAndSize(self.text + start, self.size - start)
        self.size = start
        return text

    cdef void reset(self) noexcept:
        """Empty the buffer; free it if it has grown large."""
        self.size = 0
        if self.capacity > KEPT:
            PyMem_Free(self.text)
            self.text = NULL
            self.capacity = 0


@cython.final
cdef class ResponseWriter:

    def __init__(self, tuple urls not None, bytes end not None, Py_ssize_t most,
                 BidIds ids not None, sign=None):
        for start, path in urls:
            if type(start) is not bytes or type(path) is not bytes:
                raise TypeError("a URL's start and path must be bytes")
        self._urls, self._end, self._most = urls, end, most
        self._ids, self._sign = ids, sign
        self._out = _Buffer()

    def signed(self, sign):
        return ResponseWriter(self._urls, self._end, self._most, self._ids, sign)

    cpdef bytes write(self, str auction_id, list bids, str currency="USD", bytes bid_id=None,
                      ClickStamp click=None):
        cdef Identifier auction
        cdef Bid bid
        cdef _Buffer out = self._out
        if self._out is None or not bids:
            raise ValueError("no bids to write")
        if currency is None:
            raise TypeError("the currency must be given")
        if bid_id is None:
            bid_id = self._ids.next()
        self._out = None  # guards against reentry, whatever `sign` does
        try:
            kept = self._identify(auction_id, &auction)
            out.put(b'{"id":', 6)
            out.add_json(&auction)
            out.put(b',"seatbid":[{"bid":[', 20)
            if len(bids) == 1:
                bid = bids[0]
                self._bid(out, bid, auction_id, &auction, bid_id, 0, click)
                out.add(bid.template.seat)
            else:
                self._seats(out, bids, auction_id, &auction, bid_id, click)
            out.put(b'],"bidid":"', 11)
            out.add(bid_id)
            out.put(b'","cur":"', 9)
            out.add(currency.encode())
            out.put(b'"}', 2)
            return out.since(0)
        finally:
            out.reset()
            self._out = out

    def length(self, str auction_id not None, Bid bid not None):
        cdef Identifier auction
        cdef _Buffer out = _Buffer()
        kept = self._identify(auction_id, &auction)
        self._bid(out, bid, auction_id, &auction, _EMPTY, -1, None)
        return out.size

    cdef int _seats(self, _Buffer out, list bids, str auction_id, Identifier *auction,
                    bytes bid_id, ClickStamp click) except -1:
        """Write the bids that fit, grouped by seat in the order of the seats' first bids."""
        cdef Bid bid
        cdef dict seats = {}
        cdef Py_ssize_t number, room = self._most, start = out.size
        cdef bytes written
        cdef bint is_first = True
        for number in range(len(bids)):
            bid = bids[number]
            self._bid(out, bid, auction_id, auction, bid_id, number, click)
            written = out.since(start)
            room -= PyBytes_GET_SIZE(written)
            if room < 0 and number:
                del bids[number:]
                break
            seats.setdefault(bid.template.seat, []).append(written)
        for seat, texts in seats.items():
            if not is_first:
                out.put(b',{"bid":[', 9)
            is_first = False
            for number, written in enumerate(<list>texts):
                if number:
                    out.put(b',', 1)
                out.add(written)
            out.add(seat)
        return 0

    cdef int _bid(self, _Buffer out, Bid bid, str auction_id, Identifier *auction, bytes bid_id,
                  Py_ssize_t number, ClickStamp click) except -1:
        """Write one bid. Its id is `bid_id`, then a dash and `number` unless that is negative."""
        cdef Identifier imp, deal
        cdef Py_ssize_t index
        cdef unsigned char value
        if bid is None or bid.template is None:
            raise TypeError("no bid to write")
        cdef tuple pieces = bid.template.pieces  # checked when the template was made
        cdef bytes values = bid.template.values
        kept = self._identify(bid.imp_id, &imp)
        out.add(pieces[0])
        for index in range(PyBytes_GET_SIZE(values)):
            value = values[index]
            if value == IMP_JSON:
                out.add_json(&imp)
            elif value == AUCTION_ID:
                out.put(auction.value, auction.size)
            elif value == IMP_ID:
                out.put(imp.value, imp.size)
            elif value == CLICK_ID:
                out.add_click(click, bid.template.click, auction_id, bid.imp_id)
            else:
                out.add(bid_id)
                if number >= 0:
                    out.put(b'-', 1)
                    out.add_number(number)
            out.add(pieces[index + 1])
        if bid.deal is not None:
            out.put(b',"dealid":', 10)
            deal_kept = self._identify(bid.deal, &deal)
            out.add_json(&deal)
        token = None if self._sign is None else self._sign(auction_id, bid.imp_id)
        for url in self._urls:
            out.add(<bytes>(<tuple>url)[0])
            if token is not None:
                out.add(token)
            out.add(<bytes>(<tuple>url)[1])
            out.put(auction.value, auction.size)
            out.put(b'&impId=', 7)
            out.put(imp.value, imp.size)
        return out.add(self._end)

    cdef tuple _identify(self, str text, Identifier *id):
        """Set the JSON and query forms of an id; `text` and the returned tuple own their memory."""
        cdef const char *raw
        cdef Py_ssize_t size, index = 0
        cdef tuple encoded
        if text is None:
            raise TypeError("ids must be text")
        if PyUnicode_IS_COMPACT_ASCII(text):
            raw = PyUnicode_DATA(text)
            size = PyUnicode_GET_LENGTH(text)
            while index < size and UNRESERVED[<unsigned char>raw[index]]:
                index += 1
            if index == size:
                id.value, id.size, id.json, id.json_size = raw, size, NULL, 0
                return None
        json, value = encoded = msgspec_json.encode(text), quote(text, safe="").encode()
        id.json, id.json_size = PyBytes_AS_STRING(json), len(<bytes?>json)
        id.value, id.size = PyBytes_AS_STRING(value), len(<bytes?>value)
        return encoded
