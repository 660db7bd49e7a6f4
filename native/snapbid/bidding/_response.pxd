"""Bids, and responses written into one buffer; see _response.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:  # the values between a template's pieces, in the order of response.VALUES
    BID_ID, IMP_JSON, AUCTION_ID, IMP_ID, CACHEBUSTER, CLICK_ID, N_VALUES


cdef class Template:
    cdef readonly uint64_t number
    cdef readonly int64_t price_micros, sent_micros
    cdef readonly bytes seat, values
    cdef readonly tuple pieces  # of bytes, one more than values
    cdef readonly object limits
    cdef readonly str campaign, creative
    cdef readonly bytes click  # campaign and creative in click ids; empty without the macro


cdef class Bid:
    cdef readonly str imp_id, deal
    cdef readonly Template template
    cdef readonly object cost_nanos


cdef inline Bid new_bid(str imp_id, Template template, str deal, object cost_nanos):
    cdef Bid bid = Bid.__new__(Bid)
    bid.imp_id, bid.template, bid.deal, bid.cost_nanos = imp_id, template, deal, cost_nanos
    return bid


cdef inline list as_ledger_bids(list bids):
    """Convert bids to the ledger's form."""
    cdef Bid bid
    cdef list result = []
    for bid in bids:
        result.append((
            bid.imp_id.encode(),
            bid.template.number,
            bid.template.price_micros if bid.cost_nanos is None else bid.cost_nanos,
            bid.template.limits,
        ))
    return result


cdef class ClickStamp:
    cdef bytes _keys
    cdef int _key
    cdef uint32_t _descriptor, _time_s
    cdef bint _names_auction
    cdef uint64_t _person

    cdef int write(self, char *out, bytes bought, str auction_id, str imp_id) except -1


cdef class ClickSigner:
    cdef bytes _keys
    cdef int _number
    cdef bytes persons

    cpdef ClickStamp stamp(self, uint32_t descriptor, int64_t now_ms, bint names_auction,
                           int64_t person)


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
    """A growing buffer of bytes, which a `ResponseWriter` reuses."""

    cdef char *text
    cdef Py_ssize_t size, capacity

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int put(self, const char *text, Py_ssize_t size) except -1
    cdef int add(self, bytes text) except -1
    cdef int add_number(self, Py_ssize_t number) except -1
    cdef int add_json(self, Identifier *id) except -1
    cdef int add_click(self, ClickStamp click, bytes bought, str auction_id, str imp_id) except -1
    cdef bytes since(self, Py_ssize_t start)
    cdef void reset(self) noexcept


cdef class ResponseWriter:
    cdef tuple _urls
    cdef bytes _end
    cdef Py_ssize_t _most
    cdef BidIds _ids
    cdef object _sign
    cdef _Buffer _out

    cpdef bytes write(self, str auction_id, list bids, str currency=*, bytes bid_id=*,
                      ClickStamp click=*)
    cdef int _seats(self, _Buffer out, list bids, str auction_id, Identifier *auction,
                    bytes bid_id, ClickStamp click) except -1
    cdef int _bid(self, _Buffer out, Bid bid, str auction_id, Identifier *auction, bytes bid_id,
                  Py_ssize_t number, ClickStamp click) except -1
    cdef tuple _identify(self, str text, Identifier *id)
