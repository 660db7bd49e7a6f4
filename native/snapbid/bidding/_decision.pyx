# cython: auto_pickle=False, autotestdict=False
"""The decision on a bid request; see `_decision.pyi`.

Rare steps are Python functions given to the decider: pods, quantities, other currencies, native
requests, campaigns that are short of budget.
"""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact
from libc.math cimport INFINITY
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from snapbid.bidding._bids cimport new_bid
from snapbid.catalog._reader cimport *
from snapbid.catalog._search cimport Match

cdef enum:
    MOST_OF_AN_ID = 512  # bytes that the notification endpoints accept

MAX_NOTICE_ID = MOST_OF_AN_ID


cdef inline bint fits_a_notice(str text) except -1:
    """Return whether the notification endpoints would accept the id."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
    if size > MOST_OF_AN_ID:
        return False
    if not PyUnicode_IS_COMPACT_ASCII(text):
        PyUnicode_AsUTF8AndSize(text, &size)
    return size <= MOST_OF_AN_ID


def can_be_notified(str text not None):
    return fits_a_notice(text)


cdef inline object template_key(uint32_t rank, uint32_t creative):
    return <uint64_t>rank << 32 | creative


cdef class SnapshotCore:

    def __init__(self, Reader lookups not None, Index index not None, dict ssps not None,
                 dict of_base not None, dict of_overlay not None, uint32_t overlaid):
        self.lookups, self.index, self._canonical = lookups, index, ssps
        self._of_base, self._of_overlay, self._overlaid = of_base, of_overlay, overlaid
        self.exhausted = {}

    cdef Template find(self, uint32_t rank, uint32_t creative):
        """Return the template of a creative; None if it is not built yet."""
        cdef PyObject *found = PyDict_GetItem(
            self._of_base if rank < self._overlaid else self._of_overlay,
            template_key(rank, creative))
        return None if found is NULL else <Template?><object>found

    def keep(self, uint32_t rank, uint32_t creative, Template template not None, Py_ssize_t most):
        cdef dict templates = self._of_base if rank < self._overlaid else self._of_overlay
        if len(templates) >= most:
            templates.clear()
        templates[template_key(rank, creative)] = template

    def found(self, uint32_t rank, uint32_t creative):
        return self.find(rank, creative)


@cython.no_gc  # it is part of no cycle
@cython.final
@cython.freelist(64)
cdef class Choice:

    def __init__(self, imp, uint32_t rank, uint32_t creative, int deal, double quantity=1):
        self.imp, self.rank, self.creative, self.deal = imp, rank, creative, deal
        self.quantity = quantity


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class Decision:

    @property
    def user(self):
        return self.query.user

    @property
    def declares(self):
        return self.query.declares


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class NoBid:

    def __init__(self, reason, uint32_t undecided=0):
        self.reason, self.undecided = reason, undecided

    def __eq__(self, other):
        if type(other) is not NoBid:
            return NotImplemented
        return (self.reason is (<NoBid>other).reason
                and self.undecided == (<NoBid>other).undecided)

    def __repr__(self):
        return f"NoBid({self.reason}, undecided={self.undecided})"


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class Proposal:
    pass


@cython.final
cdef class Decider:

    def __init__(self, pods_of, quantity_of, cost_of, affordable, unanswered, no_currency,
                 too_many, cut_short, long_id, double searching, double templates):
        self._pods_of, self._quantity_of, self._cost_of = pods_of, quantity_of, cost_of
        self._affordable, self._unanswered = affordable, unanswered
        self._no_currency, self._too_many = no_currency, too_many
        self._cut_short, self._long_id = cut_short, long_id
        self._searching, self._templates = searching, templates

    cpdef object search(self, object request, str ssp, SnapshotCore snapshot, int64_t now_ms,
                        double left_s=INFINITY, double processor_s=INFINITY):
        cdef Reader reader, lookups = snapshot.lookups
        cdef Decision decision
        cdef Choice choice
        cdef Query query
        cdef Match best
        cdef PyObject *canonical
        cdef bint is_found, has_too_many = False
        cdef double quantity
        cdef list choices = []
        cdef object last = None, pods = None, imps, rivals
        if lookups.checked(request, BIDREQUEST) is None or ssp is None:
            raise TypeError("no request, or no SSP")
        reader = self.in_currency(lookups, request)
        if reader is None:
            return NoBid(self._no_currency)
        canonical = PyDict_GetItem(snapshot._canonical, ssp)
        query = snapshot.index.start(
            reader, request, ssp, ssp if canonical is NULL else <str?><object>canonical, now_ms,
            left_s, processor_s)
        imps = reader.get(request, BIDREQUEST_IMP)
        if not PyList_CheckExact(imps):
            raise TypeError("a request has a list of impressions")
        if PyList_GET_SIZE(imps) > 1:
            pods = self._pods_of(imps)
        for imp in <list>imps:
            quantity = 1
            if reader.get(imp, IMP_QTY) is not None:
                quantity = self._quantity_of(request, imp)
                if quantity > <double>(<object>reader).max_quantity:
                    has_too_many = True
                    continue
            rivals = None if pods is None else pods.rivals(imp)
            if not query.impression(imp, rivals):
                continue
            last = imp
            is_found = query.take_next(&best)
            if is_found and quantity != 1:
                rest = self._affordable(
                    (best.rank, best.creative, best.deal), query, quantity, snapshot)
                is_found = rest is not None
                if is_found:
                    best.rank, best.creative, best.deal = rest
            if is_found:
                choice = Choice.__new__(Choice)
                choice.imp, choice.rank = imp, best.rank
                choice.creative, choice.deal = best.creative, best.deal
                choice.quantity = quantity
                choices.append(choice)
                if pods is not None and fits_a_notice(reader.get(imp, IMP_ID)):
                    pods.take(imp, snapshot.index.advertiser(best.rank))
        if not choices:
            if query.undecided:
                return NoBid(self._cut_short, query.undecided)
            if has_too_many and last is None:
                return NoBid(self._too_many)
            return NoBid(self._unanswered(request, has_floor=last is not None))
        decision = Decision.__new__(Decision)
        decision.choices, decision.query, decision.last = choices, query, last
        decision.lookups, decision.pods = reader, pods
        return decision

    cdef Reader in_currency(self, Reader lookups, object request):
        """Return the lookups for the currency of the bids; None if it has no rate."""
        cdef object cur = lookups.get(request, BIDREQUEST_CUR), first
        if cur is None:
            return lookups
        if PyList_CheckExact(cur) and PyList_GET_SIZE(cur) == 1:
            first = (<list>cur)[0]
            if PyUnicode_CheckExact(first) and PyUnicode_IS_COMPACT_ASCII(first) \
                    and PyUnicode_GET_LENGTH(first) == 3 \
                    and memcmp(PyUnicode_DATA(first), b"USD", 3) == 0:
                return lookups
        return (<object>lookups).bidding_in(cur)

    cpdef object propose(self, object request, str ssp, SnapshotCore snapshot, int64_t now_ms,
                         double left_s=INFINITY, double processor_s=INFINITY):
        cdef Decision decision
        cdef Proposal proposal
        cdef Choice choice
        cdef Bid bid
        cdef list bids = [], choices = []
        cdef bint limited = False
        cdef uint32_t undecided
        cdef str auction_id
        cdef object found = self.search(
            request, ssp, snapshot, now_ms, left_s, self._searching * processor_s)
        if type(found) is NoBid:
            return found
        decision = <Decision>found
        auction_id = snapshot.lookups.get(request, BIDREQUEST_ID)
        if not fits_a_notice(auction_id):
            return NoBid(self._long_id)
        undecided = decision.query.undecided
        if PyList_GET_SIZE(decision.choices) > 1:
            decision.query.allow(left_s, self._templates * processor_s)
        for choice in decision.choices:
            if bids and not decision.query.has_time():
                undecided += <uint32_t>(PyList_GET_SIZE(decision.choices) - PyList_GET_SIZE(bids))
                break
            bid = self.bid_of(choice, snapshot, decision)
            if fits_a_notice(bid.imp_id):
                bids.append(bid)
                choices.append(choice)
                limited = limited or bid.template.limits is not None
        if not bids:
            return NoBid(self._long_id)
        proposal = Proposal.__new__(Proposal)
        proposal.auction_id, proposal.bids, proposal.choices = auction_id, bids, choices
        proposal.decision, proposal.limited = decision, limited
        proposal.undecided, proposal.processor_s = undecided, processor_s
        return proposal

    cpdef Bid bid_of(self, Choice choice, SnapshotCore snapshot, Decision decision):
        cdef Reader reader
        cdef Template template = None
        cdef object imp, asked = None, cost = None
        cdef str deal_id = None
        if choice is None or snapshot is None or decision is None:
            raise TypeError("no choice")
        reader, imp = decision.lookups, choice.imp
        if choice.deal >= 0:
            deal_id = str(imp.pmp.deals[choice.deal].id)
        native = reader.child(imp, IMP_NATIVE, NATIVE)
        if native is not None:
            asked = (<object>reader).native_request(native)
        if reader.in_usd and not decision.query.workspace.request.asker.asks_dsa:
            if asked is None:
                template = snapshot.find(choice.rank, choice.creative)
            if template is None:
                template = (<object>snapshot).template(choice.rank, choice.creative, asked)
        else:
            template = (<object>snapshot).adapted(
                choice.rank, choice.creative, reader, decision.query.declares, asked)
        if choice.quantity != 1:
            cost = self._cost_of(template.price_micros, choice.quantity)
        return new_bid(reader.get(imp, IMP_ID), template, deal_id, cost)
