"""Bid responses written into one buffer; see _response.pyx."""

from libc.stdint cimport uint64_t

from snapbid.bidding._bids cimport Bid

cdef struct Identifier:
    const char *value  # as a query value
    Py_ssize_t size
    const char *json  # NULL: the same in quotes
    Py_ssize_t json_size


cdef class BidIds:
    cdef bytes _process
    cdef uint64_t _number

    cpdef bytes next(self)


cdef class _Buffer:
    """The output buffer."""

    cdef char *text
    cdef Py_ssize_t size, capacity

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int put(self, const char *text, Py_ssize_t size) except -1
    cdef int add(self, bytes text) except -1
    cdef int add_number(self, Py_ssize_t number) except -1
    cdef int add_json(self, Identifier *id) except -1
    cdef bytes since(self, Py_ssize_t start)
    cdef void reset(self) noexcept


cdef class ResponseWriter:
    cdef tuple _urls
    cdef bytes _end
    cdef object _encode, _sign
    cdef Py_ssize_t _most
    cdef _Buffer _out

    cpdef bytes write(self, str auction_id, bytes bid_id, list bids, str currency=*)
    cdef int _seats(self, _Buffer out, list bids, str auction_id, Identifier *auction,
                    bytes bid_id) except -1
    cdef int _bid(self, _Buffer out, Bid bid, str auction_id, Identifier *auction, bytes bid_id,
                  Py_ssize_t number) except -1
    cdef tuple _identify(self, str text, Identifier *id)
