"""Bids before they are written, and the templates of creatives."""

from libc.stdint cimport int64_t, uint64_t

cdef enum:  # the values between a template's pieces, in the order of response.VALUES
    BID_ID, IMP_JSON, AUCTION_ID, IMP_ID, CACHEBUSTER, N_VALUES


cdef class Template:
    cdef readonly uint64_t number
    cdef readonly int64_t price_micros, sent_micros
    cdef readonly bytes seat, values
    cdef readonly tuple pieces  # of bytes, one more than values
    cdef readonly object limits
    cdef readonly str campaign, creative


cdef class Bid:
    cdef readonly str imp_id, deal
    cdef readonly Template template
    cdef readonly object cost_micros


cdef inline Bid new_bid(str imp_id, Template template, str deal, object cost_micros):
    cdef Bid bid = Bid.__new__(Bid)
    bid.imp_id, bid.template, bid.deal, bid.cost_micros = imp_id, template, deal, cost_micros
    return bid


cdef inline list as_ledger_bids(list bids):
    """See `ledger_bids`."""
    cdef Bid bid
    cdef list result = []
    for bid in bids:
        result.append((
            bid.imp_id.encode(),
            bid.template.number,
            bid.template.price_micros if bid.cost_micros is None else bid.cost_micros,
            bid.template.limits,
        ))
    return result
