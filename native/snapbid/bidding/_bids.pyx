# cython: auto_pickle=False, autotestdict=False
"""See _bids.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Template:

    def __init__(self, uint64_t number, int64_t price_micros, bytes seat not None,
                 tuple pieces not None, bytes values not None, limits=None, str campaign not None="",
                 str creative not None="", int64_t sent_micros=0):
        cdef Py_ssize_t index
        if len(pieces) != PyBytes_GET_SIZE(values) + 1:
            raise ValueError("there must be one piece more than values")
        for index in range(PyBytes_GET_SIZE(values)):
            if <unsigned char>PyBytes_AS_STRING(values)[index] >= N_VALUES:
                raise ValueError("unknown value")
        for piece in pieces:
            if not PyBytes_CheckExact(piece):
                raise TypeError("a piece is bytes")
        self.number, self.price_micros, self.sent_micros = number, price_micros, sent_micros
        self.seat, self.pieces, self.values = seat, pieces, values
        self.limits, self.campaign, self.creative = limits, campaign, creative


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class Bid:

    def __init__(self, str imp_id not None, Template template not None, str deal,
                 cost_micros=None):
        self.imp_id, self.template, self.deal = imp_id, template, deal
        self.cost_micros = cost_micros

    def __repr__(self):
        return f"Bid({self.imp_id!r}, {self.template!r}, {self.deal!r}, {self.cost_micros!r})"

    def __eq__(self, other):
        if type(other) is not Bid:
            return NotImplemented
        return (self.imp_id, self.template, self.deal, self.cost_micros) == (
            (<Bid>other).imp_id, (<Bid>other).template, (<Bid>other).deal,
            (<Bid>other).cost_micros)


def ledger_bids(bids):
    return as_ledger_bids(list(bids))
