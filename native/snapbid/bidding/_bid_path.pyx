# cython: auto_pickle=False, autotestdict=False
"""The bid path, from a request's headers to its answer, in one file; see `_bid_path.pyi`.

    headers, body -> request -> proposal -> response -> the ledger's verdicts -> answer

`BidCall` takes these steps as a coroutine, written as a state machine. `AdmissionControl` decides
whether to admit the request, `propose` what to bid, and `ResponseWriter` (_response) writes it.
Python handles what few requests need: bodies with unusual headers (base/http), pods, quantities,
refused bids (limits), and the lookups and templates of the snapshot.
"""

from asyncio import CancelledError
from collections import deque
from functools import partial

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_CheckExact
from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, strchr, strlen

from allowance cimport CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID, sb_clock
from snapbid.base.errors import BodyTimeout, Problem
from snapbid.base.http import (JSON, NO_CONTENT, Answer, Disconnected, accepted_encoding, answer,
                               compress, leave_body, read_json_body, read_rest)
from snapbid.bidding import bounds
from snapbid.bidding._response cimport (Bid, ClickSigner, ClickStamp, ResponseWriter, Template,
                                        as_ledger_bids, new_bid)
from snapbid.bidding.cost import cost_of, quantity_of
from snapbid.bidding.limits import affordable, replace_refused, without_refused
from snapbid.bidding.pods import pods_of
from snapbid.bidding.reasons import Reason, unanswered
from snapbid.bidding.request import check, decode, decode_plain
from snapbid.bidding.response import MAX_ANSWER
from snapbid.catalog._index cimport Index, Match, Query, RefusedRanks
from snapbid.catalog._request cimport *
from snapbid.ledger.bids.records import BidVerdict
from snapbid.metrics._cells cimport Counter, Counters, Histogram
from snapbid.reference.geo import bare_address

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR
    void Py_DECREF(PyObject *)
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t index)
    void PyErr_SetObject(object kind, object value)

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

cdef extern from "<arpa/inet.h>":
    enum: AF_INET, AF_INET6
    int inet_pton(int family, const char *text, void *packed)


# -- headers ---------------------------------------------------------------------------------------

cdef enum:
    MAX_DIGITS = 18  # of a length


cdef inline bint is_name(bytes name, const char *text, Py_ssize_t size) noexcept:
    return PyBytes_GET_SIZE(name) == size and memcmp(PyBytes_AS_STRING(name), text, size) == 0


cdef inline bint is_field(object field) noexcept:
    """Return whether a header is a pair of bytes."""
    return (PyTuple_CheckExact(field) and PyTuple_GET_SIZE(field) == 2
            and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(field, 0))
            and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(field, 1)))


cdef inline bint is_json(bytes value) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    cdef const char *text = PyBytes_AS_STRING(value)
    return (size >= 16 and memcmp(text, b"application/json", 16) == 0
            and (size == 16 or text[16] == b";"))


cdef inline Py_ssize_t length_of(bytes value) noexcept:
    """Parse a Content-Length; -1 for anything but 1 to 18 digits."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value), index, length = 0
    cdef const char *text = PyBytes_AS_STRING(value)
    if not 0 < size <= MAX_DIGITS:
        return -1
    for index in range(size):
        if not 48 <= text[index] <= 57:
            return -1
        length = 10 * length + text[index] - 48
    return length


cdef inline Py_ssize_t stated_length(object headers) except -2:
    """Return the Content-Length of a plain JSON body; -1 if the headers must be read in full."""
    cdef Py_ssize_t length = -1, size
    cdef bint typed = False
    cdef bytes name, value
    if not PyList_CheckExact(headers):
        return -1
    for field in <list>headers:
        if not is_field(field):
            return -1
        name, value = <object>PyTuple_GET_ITEM(field, 0), <object>PyTuple_GET_ITEM(field, 1)
        size = PyBytes_GET_SIZE(name)
        if size == 12 and is_name(name, b"content-type", 12):
            if typed or not is_json(value):
                return -1
            typed = True
        elif size == 14 and is_name(name, b"content-length", 14):
            if length >= 0:
                return -1
            length = length_of(value)
            if length < 0:
                return -1
        elif size == 16 and is_name(name, b"content-encoding", 16):
            return -1
    return length if typed else -1


cdef inline object last_value(object headers, bytes name):
    """Return a header's last value; b"" if there is none."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name)
    cdef object found = b""
    for key, value in headers:
        if PyBytes_CheckExact(key) and is_name(<bytes>key, PyBytes_AS_STRING(name), size):
            found = value
    return found


def plain_length(headers):
    return stated_length(headers)


def value_of(headers, bytes name not None):
    return last_value(headers, name)


# -- request statistics ----------------------------------------------------------------------------

cdef inline bint is_stated(object text) noexcept:
    """Return whether a field is present, and neither empty text nor 0."""
    return is_given(text) and not is_zero(text)


cdef inline bint is_address(object text) except -1:
    """Return whether a field holds an IP address, as `reference.geo.bare_address` reads it."""
    cdef const char *raw
    cdef char[16] packed
    if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
        raw = <const char *>PyUnicode_DATA(text)
        if <Py_ssize_t>strlen(raw) == PyUnicode_GET_LENGTH(text) and inet_pton(
                AF_INET if strchr(raw, c':') is NULL else AF_INET6, raw, packed) == 1:
            return True
    return bare_address(text_of(text)) is not None


@cython.final
cdef class RequestCounts:
    cdef readonly int requests, tests, country, strange_country, ua
    cdef readonly int ip, strange_ip, ipv6, strange_ipv6
    cdef readonly dict statuses
    cdef readonly object answers
    cdef object _note
    cdef int _wanted  # samples to take before `take_samples`
    cdef list _samples

    def __init__(self, int kept, int sampled=0):
        self._wanted, self._samples = sampled, []
        self.answers = deque(maxlen=kept)
        self._note = self.answers.append
        self.clear()

    def clear(self):
        self.requests = self.tests = self.country = self.strange_country = 0
        self.ua = self.ip = self.strange_ip = self.ipv6 = self.strange_ipv6 = 0
        self.statuses = {}
        self.answers.clear()

    cdef bint count(self, Reader reader, object request) except -1:
        """Count the fields that the go-live checklist examines; return whether this is a test."""
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
            self.count_address(reader, device)
        if is_one(reader.get(request, BIDREQUEST_TEST)):
            self.tests += 1
            return True
        return False

    cdef int count_address(self, Reader reader, object device) except -1:
        """Count the first field with an IP address, and those before it with another value."""
        ip = reader.get(device, DEVICE_IP)
        if is_stated(ip):
            if is_address(ip):
                self.ip += 1
                return 0
            self.strange_ip += 1
        ipv6 = reader.get(device, DEVICE_IPV6)
        if is_stated(ipv6):
            if is_address(ipv6):
                self.ipv6 += 1
            else:
                self.strange_ipv6 += 1
        return 0

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


# -- admission -------------------------------------------------------------------------------------

cdef double _INTERVAL_S = 0.05
cdef double _TARGET_S = 0.03

INTERVAL_S = _INTERVAL_S
TARGET_S = _TARGET_S
FIRST_LIMIT = 256
LEAST_LIMIT = 64
MOST_LIMIT = 4096


@cython.final
cdef class SspShare:
    cdef readonly int under_way
    cdef readonly int reading
    cdef readonly int reading_before


@cython.final
cdef class AdmissionControl:
    cdef readonly int limit
    cdef readonly int under_way
    cdef readonly double waited_s
    cdef int _first_limit, _least_limit, _most_limit
    cdef double _limit_per_ssp
    cdef dict _shares
    cdef double _began, _began_before, _until
    cdef int _completed
    cdef int _fewest  # fewest requests in flight at once, in this interval
    cdef double _least_wait_s

    def __init__(self, double now, int first=FIRST_LIMIT, int least=LEAST_LIMIT,
                 int most=MOST_LIMIT):
        self.limit = self._first_limit = first
        self._least_limit, self._most_limit = least, most
        self.under_way = 0
        self.waited_s = 0.0
        self._limit_per_ssp = first
        self._shares = {}
        self._began = self._began_before = now
        self._until = now + _INTERVAL_S
        self._completed = self._fewest = 0
        self._least_wait_s = _INTERVAL_S

    def share(self, str ssp not None):
        return self._shares.setdefault(ssp, SspShare())

    cpdef bint enter(self, SspShare share, double now) except -1:
        if share is None:
            raise TypeError("the SSP's share must be given")
        if now >= self._until:
            self._begin(now)
        if self.under_way >= self.limit and share.under_way >= self._limit_per_ssp:
            return False
        self.under_way += 1
        share.under_way += 1
        share.reading += 1
        return True

    cpdef int has_body(self, SspShare share, double entered, double now) except -1:
        if share is None:
            raise TypeError("the SSP's share must be given")
        if entered >= self._began:
            share.reading -= 1
        elif entered >= self._began_before:
            share.reading_before -= 1
        else:
            self.under_way += 1
            share.under_way += 1
        if now - entered < self._least_wait_s:
            self._least_wait_s = now - entered
        return 0

    def leave(self, SspShare share not None):
        self.end(share)

    cdef int end(self, SspShare share) except -1:
        self._completed += 1
        share.under_way -= 1
        self.under_way -= 1
        if self.under_way < self._fewest:
            self._fewest = self.under_way
        return 0

    cdef int _begin(self, double now) except -1:
        """Begin an interval, with a limit based on the requests completed in the last one."""
        cdef SspShare share
        for share in self._shares.values():
            share.under_way -= share.reading_before
            self.under_way -= share.reading_before
            share.reading_before, share.reading = share.reading, 0
        self._adapt(now - self._began)
        self._began_before, self._began = self._began, now
        self._until = now + _INTERVAL_S
        self._completed = 0
        self._fewest = self.under_way
        self._least_wait_s = _INTERVAL_S
        return 0

    cdef int _adapt(self, double seconds) except -1:
        """Set the limit; only an interval that was busy throughout shows the worker's capacity."""
        cdef SspShare share
        cdef int busy = 0
        cdef double left_s
        self.waited_s = self._least_wait_s if self._completed else 0.0
        if self._fewest >= self._least_limit:
            left_s = max(_TARGET_S - self.waited_s, 0.0)
            self.limit = <int>(self._completed / seconds * left_s)
            self.limit = min(max(self.limit, self._least_limit), self._most_limit)
        else:
            self.limit = max(self.limit, self._first_limit)
        for share in self._shares.values():
            busy += share.under_way > 0
        self._limit_per_ssp = self.limit / <double>max(busy, 1)
        return 0


@cython.final
cdef class Outcome:
    cdef Counter _counter
    cdef RequestCounts _request_stats
    cdef AdmissionControl _admission
    cdef SspShare _share
    cdef Histogram _seconds
    cdef object _status

    def __init__(self, Counter counter not None, RequestCounts request_stats not None, int status,
                 AdmissionControl admission not None, SspShare share not None,
                 Histogram seconds not None):
        self._counter, self._request_stats, self._status = counter, request_stats, status
        self._admission, self._share, self._seconds = admission, share, seconds

    cpdef int count(self) except -1:
        if self._counter is None:
            raise TypeError("the outcome has no counter")
        self._counter.add(1)
        return self._request_stats.note(self._status)

    cpdef int end(self, double seconds) except -1:
        self.count()
        self._seconds.take(seconds)
        return self._admission.end(self._share)


# -- the decision ----------------------------------------------------------------------------------

cdef enum:
    MOST_OF_AN_ID = 512  # bytes that the notification endpoints accept

cdef double SEARCHING = bounds.SEARCHING
cdef double TEMPLATES = bounds.TEMPLATES

# Looking up an enumeration's member is a Python call.
cdef object CURRENCY = Reason.CURRENCY
cdef object QUANTITY = Reason.QUANTITY
cdef object CUT_SHORT = Reason.CUT_SHORT
cdef object LONG_ID = Reason.LONG_ID

MAX_NOTICE_ID = MOST_OF_AN_ID


cdef inline bint fits_a_notice(str text) except -1:
    """Return whether the notification endpoints would accept a text as an id."""
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


@cython.final
cdef class SnapshotCore:
    cdef readonly object lookups
    cdef readonly Index index
    cdef readonly RefusedRanks refused
    cdef dict _refused_of  # RefusedRanks by SSP, of SSPs with more refusals than `refused`
    cdef Reader _reader  # of the lookups
    cdef dict _canonical
    cdef dict _of_base, _of_overlay  # templates by `template_key`
    cdef uint32_t _overlaid

    def __init__(self, lookups, Index index not None, dict ssps not None,
                 dict of_base not None, dict of_overlay not None, uint32_t overlaid):
        self.lookups, self._reader = lookups, lookups.reader
        self.index, self._canonical = index, ssps
        self.refused, self._refused_of = RefusedRanks(index), {}
        self._of_base, self._of_overlay, self._overlaid = of_base, of_overlay, overlaid

    cdef Template find(self, uint32_t rank, uint32_t creative):
        """Return a creative's template; None if it has not been built yet."""
        cdef PyObject *found = PyDict_GetItem(
            self._of_base if rank < self._overlaid else self._of_overlay,
            template_key(rank, creative))
        return None if found is NULL else <Template?><object>found

    cpdef RefusedRanks refused_for(self, str ssp):
        cdef PyObject *own
        if self._refused_of:
            own = PyDict_GetItem(self._refused_of, ssp)
            if own is not NULL:
                return <RefusedRanks?><object>own
        return self.refused

    def refuse(self, uint32_t rank, str ssp):
        cdef RefusedRanks own
        if ssp is None:
            self.refused.add(rank)
            for own in self._refused_of.values():
                own.add(rank)
            return
        own = self.refused_for(ssp)
        if own is self.refused:
            own = self._refused_of[ssp] = RefusedRanks(self.index, self.refused)
        own.add(rank)

    def reactivate(self, uint32_t rank):
        cdef RefusedRanks own
        self.refused.discard(rank)
        for own in self._refused_of.values():
            own.discard(rank)

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
    cdef readonly object imp
    cdef readonly uint32_t rank, creative
    cdef readonly int deal
    cdef readonly double quantity

    def __init__(self, imp, uint32_t rank, uint32_t creative, int deal, double quantity=1):
        self.imp, self.rank, self.creative, self.deal = imp, rank, creative, deal
        self.quantity = quantity

    def replaced_by(self, uint32_t rank, uint32_t creative, int deal):
        return Choice(self.imp, rank, creative, deal, self.quantity)


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class Decision:
    cdef readonly list choices
    cdef readonly Query query
    cdef readonly object last
    cdef readonly object snapshot
    cdef SnapshotCore _core  # its native part
    cdef readonly object lookups
    cdef Reader _reader  # of the lookups
    cdef readonly object pods

    @property
    def user(self):
        return self.query.user

    @property
    def declares(self):
        return self.query.declares

    cpdef Bid bid_of(self, Choice choice):
        cdef Reader reader = self._reader
        cdef Template template = None
        cdef object imp, asked = None, cost = None
        cdef str deal_id = None
        if choice is None or self.snapshot is None:
            raise TypeError("there is no choice to bid for")
        imp = choice.imp
        if choice.deal >= 0:
            deal_id = str(imp.pmp.deals[choice.deal].id)
        native = reader.child(imp, IMP_NATIVE, NATIVE)
        if native is not None:
            asked = self.lookups.native_request(native)
        if reader.in_usd and not self.query.workspace.request.asker.asks_dsa:
            if asked is None:
                template = self._core.find(choice.rank, choice.creative)
            if template is None:
                template = self.snapshot.template(choice.rank, choice.creative, asked)
        else:
            template = self.snapshot.adapted(
                choice.rank, choice.creative, self.lookups, self.query.declares, asked)
        if choice.quantity != 1:
            cost = cost_of(template.price_micros, choice.quantity)
        return new_bid(reader.get(imp, IMP_ID), template, deal_id, cost)


@cython.no_gc
@cython.final
@cython.freelist(64)
cdef class NoBid:
    cdef readonly object reason
    cdef readonly uint32_t undecided
    cdef readonly Query query

    def __init__(self, reason, uint32_t undecided=0, Query query=None):
        self.reason, self.undecided, self.query = reason, undecided, query

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
    cdef readonly str auction_id
    cdef readonly list bids, choices
    cdef readonly Decision decision
    cdef readonly bint limited
    cdef readonly uint32_t undecided
    cdef readonly double processor_s


cdef object in_currency(SnapshotCore core, object request):
    """Return the lookups for the bids' currency; None if no accepted currency has a rate."""
    cdef object cur = core._reader.get(request, BIDREQUEST_CUR), first
    if cur is None:
        return core.lookups
    if PyList_CheckExact(cur) and PyList_GET_SIZE(cur) == 1:
        first = (<list>cur)[0]
        if PyUnicode_CheckExact(first) and PyUnicode_IS_COMPACT_ASCII(first) \
                and PyUnicode_GET_LENGTH(first) == 3 \
                and memcmp(PyUnicode_DATA(first), b"USD", 3) == 0:
            return core.lookups
    return core.lookups.bidding_in(cur)


cpdef object search(object request, str ssp, object snapshot, int64_t now_ms,
                    double left_s=INFINITY, double processor_s=INFINITY):
    cdef SnapshotCore core = snapshot.core
    cdef Reader reader = core._reader
    cdef Decision decision
    cdef Choice choice
    cdef Query query
    cdef Match best
    cdef PyObject *canonical
    cdef bint is_found, has_too_many = False
    cdef double quantity
    cdef list choices = []
    cdef object last = None, pods = None, lookups, imps, rivals
    if reader.checked(request, BIDREQUEST) is None or ssp is None:
        raise TypeError("not a decoded BidRequest, or no SSP")
    lookups = in_currency(core, request)
    if lookups is None:
        return NoBid(CURRENCY)
    if lookups is not core.lookups:
        reader = lookups.reader
    canonical = PyDict_GetItem(core._canonical, ssp)
    query = core.index.start(
        lookups, reader, request, ssp, ssp if canonical is NULL else <str?><object>canonical,
        now_ms, left_s, processor_s, core.refused_for(ssp))
    imps = reader.get(request, BIDREQUEST_IMP)
    if not PyList_CheckExact(imps):
        raise TypeError("imp must be a list")
    if PyList_GET_SIZE(imps) > 1:
        pods = pods_of(imps)
        if pods is not None:
            imps = pods.in_turn()
    for imp in <list>imps:
        quantity = 1
        if reader.get(imp, IMP_QTY) is not None:
            quantity = quantity_of(request, imp)
            if quantity > <double>lookups.max_quantity:
                has_too_many = True
                continue
        rivals = None if pods is None else pods.rivals(imp)
        if not query.impression(imp, rivals):
            continue
        last = imp
        is_found = query.take_next(&best)
        if is_found and quantity != 1:
            rest = affordable(
                (best.rank, best.creative, best.deal), query, quantity, snapshot, ssp)
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
                pods.take(imp, core.index.advertiser(best.rank))
    if not choices:
        if query.undecided:
            return NoBid(CUT_SHORT, query.undecided, query)
        if has_too_many and last is None:
            return NoBid(QUANTITY, 0, query)
        return NoBid(unanswered(request, has_floor=last is not None), 0, query)
    if pods is not None:
        choices = pods.as_requested(choices)
    decision = Decision.__new__(Decision)
    decision.choices, decision.query, decision.last = choices, query, last
    decision.snapshot, decision._core = snapshot, core
    decision.lookups, decision._reader = lookups, reader
    decision.pods = pods
    return decision


cpdef object propose(object request, str ssp, object snapshot, int64_t now_ms,
                     double left_s=INFINITY, double processor_s=INFINITY):
    cdef Decision decision
    cdef Proposal proposal
    cdef Choice choice
    cdef Bid bid
    cdef list bids = [], choices = []
    cdef bint limited = False
    cdef uint32_t undecided
    cdef str auction_id
    cdef object found = search(
        request, ssp, snapshot, now_ms, left_s, SEARCHING * processor_s)
    if type(found) is NoBid:
        return found
    decision = <Decision>found
    auction_id = decision._reader.get(request, BIDREQUEST_ID)
    if not fits_a_notice(auction_id):
        return NoBid(LONG_ID, 0, decision.query)
    undecided = decision.query.undecided
    if PyList_GET_SIZE(decision.choices) > 1:
        decision.query.allow(left_s, TEMPLATES * processor_s)
    for choice in decision.choices:
        if bids and not decision.query.has_time():
            undecided += <uint32_t>(PyList_GET_SIZE(decision.choices) - PyList_GET_SIZE(bids))
            break
        bid = decision.bid_of(choice)
        if fits_a_notice(bid.imp_id):
            bids.append(bid)
            choices.append(choice)
            limited = limited or bid.template.limits is not None
    if not bids:
        return NoBid(LONG_ID, 0, decision.query)
    proposal = Proposal.__new__(Proposal)
    proposal.auction_id, proposal.bids, proposal.choices = auction_id, bids, choices
    proposal.decision, proposal.limited = decision, limited
    proposal.undecided, proposal.processor_s = undecided, processor_s
    return proposal


# -- the endpoint ----------------------------------------------------------------------------------

cdef enum:
    NS_IN_MS = 1000000
    GZIP_FROM = 1024  # bytes of a response

cdef Py_ssize_t GZIP_TO = 2 * MAX_ANSWER  # a longer one is a single bid, and takes too long to compress
cdef Py_ssize_t MAX_VALUES = bounds.MAX_VALUES
cdef Py_ssize_t LARGE = bounds.LARGE
cdef object OVERLOAD = Reason.OVERLOAD
cdef object STORE_DOWN = Reason.STORE_DOWN
cdef object LATE = Reason.LATE
cdef str REQUESTS = "snapbid_bid_requests_total"
cdef unsigned char KEPT = ord(BidVerdict.KEPT.value)


cdef inline bint has_id(Reader reader, object imp) except -1:
    cdef object id = reader.get(reader.checked(imp, IMP), IMP_ID)
    return PyUnicode_CheckExact(id) and PyUnicode_GET_LENGTH(id) != 0


@cython.final
cdef class BidEndpoint:
    cdef readonly object snapshot
    cdef SnapshotCore _core  # its native part
    cdef str _ssp
    cdef object _number
    cdef tuple _source  # descriptor and canonical id, for the auction log
    cdef object _bidding
    cdef ResponseWriter _writer
    cdef AdmissionControl _admission
    cdef SspShare _share
    cdef object _request_stats
    cdef RequestCounts _counts  # its part for all requests
    cdef Outcome _bid_made
    cdef dict _no_bids  # outcomes by reason
    cdef Counters _refusals
    cdef Counter _cut_short, _restricted
    cdef Histogram _decoding, _matching, _committing
    cdef unsigned int _calls
    cdef Py_ssize_t _max_bytes
    cdef double _tmax_s, _processor_s
    cdef object _ledger, _log, _body_deadline
    cdef bytes _family
    cdef object _clock, _timer  # epoch ms, and seconds; None: the system's

    def __init__(self, str ssp not None, snapshot, bidding, request_stats):
        catalog, metrics = snapshot.catalog, bidding.metrics
        canonical = catalog.ssps[ssp]
        self.use(snapshot)
        self._ssp, self._source = ssp, (ssp, canonical)
        self._number = catalog.ssp_numbers[ssp]
        self._request_stats, self._counts = request_stats, request_stats.counts
        self._bidding, self._admission = bidding, bidding.admission
        self._share = self._admission.share(canonical)
        self._writer = bidding.writer
        self._decoding, self._matching, self._committing = bidding.timings.steps
        self._max_bytes, self._processor_s = bidding.max_bytes, bidding.processor_s
        self._tmax_s = bidding.tmax_ms / 1000
        self._ledger, self._log = bidding.ledger, bidding.log
        self._family = bidding.family
        self._body_deadline = bidding.body_deadline
        self._clock, self._timer = bidding.clock, bidding.timer
        self._bid_made = self.outcome("bid", 200)
        self._no_bids = {reason: self.outcome(reason.value, 204) for reason in Reason}
        self._refusals = Counters(metrics, REQUESTS, "ssp", "outcome")
        self._cut_short = metrics.counter("snapbid_bid_cut_short_total", ssp=ssp)
        self._restricted = bidding.restricted

    cdef Outcome outcome(self, str value, int status):
        cdef object bidding = self._bidding
        return Outcome(bidding.metrics.counter(REQUESTS, ssp=self._ssp, outcome=value),
                       self._counts, status, self._admission, self._share, bidding.timings.whole)

    def __call__(self, headers, receive):
        cdef BidCall call = BidCall.__new__(BidCall)
        call._endpoint, call._headers, call._receive = self, headers, receive
        return call

    def use(self, snapshot):
        self._core, self.snapshot = snapshot.core, snapshot

    def no_bid(self, reason):
        (<Outcome?>self._no_bids[reason]).count()
        return NO_CONTENT

    def count_refusal(self, problem):
        self._refusals.inc(self._ssp, problem.code)

    cdef int count_failure(self, error) except -1:
        """Count a request that ends with an error other than a disconnection or a cancellation."""
        if isinstance(error, Problem):
            self.count_refusal(error)
            self._request_stats.refused(error)
        elif isinstance(error, Exception) and not isinstance(error, Disconnected):
            self._counts.answered(500)
            self._refusals.inc(self._ssp, Problem.code)
        return 0

    cdef object decoded(self, bytes body):
        """Decode and check a request. Raises BadRequest."""
        cdef Reader reader = self._core._reader
        cdef object request, imps, id
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        if size > MAX_VALUES or not sb_is_ascii(PyBytes_AS_STRING(body), size):
            return decode(body, None)
        try:
            request = decode_plain(body)
        except Exception as error:
            return decode(body, error)
        reader.checked(request, BIDREQUEST)
        imps, id = reader.get(request, BIDREQUEST_IMP), reader.get(request, BIDREQUEST_ID)
        if not (PyList_CheckExact(imps) and PyList_GET_SIZE(imps) == 1
                and PyUnicode_CheckExact(id) and PyUnicode_GET_LENGTH(id)
                and has_id(reader, (<list>imps)[0])):
            check(request, body)
        return request

    cdef int64_t now_ms(self) except -1:
        return sb_clock(CLOCK_REALTIME) // NS_IN_MS if self._clock is None else self._clock()

    cdef double seconds(self) except? -1:
        """Return the time, as `time.perf_counter` does."""
        return sb_clock(CLOCK_MONOTONIC) * 1e-9 if self._timer is None else self._timer()


# -- one request -----------------------------------------------------------------------------------

cdef enum State:
    NEW
    LEAVING  # skipping the body, after an overload
    READING  # the body's first message
    READING_ON  # the body, by a coroutine
    COMMITTING  # waiting for the ledger's verdicts
    REPLACING  # replacing bids that it refused, by a coroutine
    OVER

cdef enum:
    TIMED_ONE_IN = 16  # the steps of one request in 16 are measured
    MOST_STARTS = 4096  # start messages that are kept
    MOST_MS = 0x7fffffff  # the largest `tmax` (OpenRTB's integers); a larger one counts as absent

cdef double MARGIN_S = 0.01  # of `tmax`, reserved for the answer's transit
cdef double LEAST_SHARE = 0.2  # of a request's processor time, left for the search after decoding

cdef object _OVER = object()
cdef dict _STARTS = {}  # by the length of the body
cdef str BODY = "body"
cdef bytes CONTENT_TYPE = b"content-type"


cdef inline bint all_kept(object verdicts) except -1:
    """Return whether there are verdicts, and all of them are KEPT."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(verdicts), index
    cdef const char *letters
    if not PyUnicode_IS_COMPACT_ASCII(verdicts):
        verdicts = verdicts[:]  # a str subclass, such as an enum member, as plain text
        if not PyUnicode_IS_COMPACT_ASCII(verdicts):
            return False
    if size == 0:
        return False
    letters = PyUnicode_DATA(verdicts)
    for index in range(size):
        if <unsigned char>letters[index] != KEPT:
            return False
    return True


cdef object start_of(Py_ssize_t size):
    """Return the ASGI start message of an answer with `size` bytes of JSON."""
    cdef PyObject *found = PyDict_GetItem(_STARTS, size)
    if found is not NULL:
        return <object>found
    if len(_STARTS) >= MOST_STARTS:
        _STARTS.clear()
    start = _STARTS[size] = answer(200, bytes(size)).start
    return start


cdef inline object currency_of(Decision decision):
    return "USD" if decision._reader.in_usd else decision.lookups.currency


@cython.final
@cython.freelist(256)
cdef class BidCall:
    cdef BidEndpoint _endpoint
    cdef object _headers, _receive
    cdef State _state
    cdef object _awaited  # an iterator
    cdef object _coming, _messages  # the body's first message; the messages of its deadline
    cdef Py_ssize_t _length
    cdef double _started, _deadline, _step_began
    cdef bint _is_timed, _is_test, _is_admitted
    cdef str _auction_id
    cdef list _bids  # sent to the ledger
    cdef object _currency
    cdef ClickStamp _stamp
    cdef bytes _response
    cdef Proposal _proposal  # if bids may be replaced or are logged; it keeps the request alive
    cdef object _snapshot
    cdef object _began_ms, _result

    # -- a coroutine's methods --------------------------------------------------------------------

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef object awaited = self.go_on(None)
        if awaited is _OVER:
            PyErr_SetObject(StopIteration, self._result)
            raise StopIteration  # as it was set, without a traceback
        return awaited

    def send(self, value):
        cdef object awaited = self.go_on(value)
        if awaited is _OVER:
            raise StopIteration(self._result)
        return awaited

    def throw(self, kind, value=None, traceback=None):
        cdef object awaited = self.go_on_with(_exception(kind, value))
        if awaited is _OVER:
            raise StopIteration(self._result)
        return awaited

    def close(self):
        if self._state == OVER:
            return
        try:
            close = getattr(self._awaited, "close", None)
            if close is not None:
                close()
        finally:
            if self._state == NEW:
                self._state = OVER
            else:
                self.fail(GeneratorExit())

    cdef object go_on(self, value):
        """Send `value` to the awaited object and run to the next await; return what that yields,
        or _OVER."""
        cdef PyObject *result = NULL
        cdef PySendResult sent
        cdef object given
        if self._state == OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        try:
            if self._state == NEW:
                self.begin()
            while self._state != OVER:
                sent = PyIter_Send(self._awaited, value, &result)
                given = <object>result
                Py_DECREF(result)
                if sent == PYGEN_NEXT:
                    return given
                self._awaited, value = None, None
                self.take(given)
        except BaseException as error:
            self.fail(error)
            raise
        return _OVER

    cdef object go_on_with(self, error):
        """Throw an error into the awaited object; otherwise like `go_on`."""
        if self._state == OVER or self._state == NEW:
            self._state = OVER
            raise error
        try:
            throw = getattr(self._awaited, "throw", None)
            if throw is None:
                raise error
            try:
                return throw(error)
            except StopIteration as stop:
                self._awaited = None
                self.take(stop.value)
        except BaseException as own:
            self.fail(own)
            raise
        return _OVER if self._state == OVER else self.go_on(None)

    # -- its states -------------------------------------------------------------------------------

    cdef int begin(self) except -1:
        cdef BidEndpoint endpoint = self._endpoint
        cdef AdmissionControl admission = endpoint._admission
        self._started = endpoint.seconds()
        if not admission.enter(endpoint._share, self._started):
            return self.wait_for(
                LEAVING, leave_body(dict(self._headers), self._receive, admission.waited_s))
        self._is_admitted = True
        self._state = READING  # from here on, its body is awaited
        self._length = stated_length(self._headers)
        if not 0 <= self._length <= endpoint._max_bytes:
            return self.wait_for(READING_ON, self.read_closely())
        self._messages = endpoint._body_deadline.current
        self._coming = self._receive()
        PyDict_SetItem(self._messages, self._coming, None)
        return self.wait_for(READING, self._coming)

    cdef object read_closely(self):
        """Read a body with unusual headers; JSON if there is no Content-Type (OpenRTB 2.6, 2.2)."""
        cdef dict fields = dict(self._headers)
        if not fields.get(CONTENT_TYPE):
            self._endpoint._request_stats.untyped()
            fields[CONTENT_TYPE] = JSON
        return read_json_body(
            fields, self._receive, self._endpoint._max_bytes, self._endpoint._body_deadline)

    cdef int wait_for(self, State state, object awaitable) except -1:
        self._state, self._awaited = state, awaitable.__await__()
        return 0

    cdef int take(self, object given) except -1:
        """Handle the result awaited in this state."""
        cdef BidEndpoint endpoint = self._endpoint
        cdef PyObject *found
        if self._state == READING:
            PyDict_DelItem(self._messages, self._coming)
            self._coming = None
            found = PyDict_GetItem(given, BODY)
            if found is not NULL and PyBytes_CheckExact(<object>found) \
                    and PyBytes_GET_SIZE(<object>found) == self._length:
                return self.has_body(<bytes><object>found)
            return self.wait_for(READING_ON, read_rest(
                given, self._receive, self._length, endpoint._max_bytes, self._messages))
        if self._state == READING_ON:
            return self.has_body(<bytes?>given)
        if self._state == COMMITTING:
            return self.has_verdicts(given)
        if self._state == REPLACING:
            return self.has_replaced(given)
        # leaving
        self._state = OVER
        self._result = endpoint.no_bid(OVERLOAD)
        return 0

    cdef int has_body(self, bytes body) except -1:
        """Decide on the request, and send the bids to the ledger."""
        cdef BidEndpoint endpoint = self._endpoint
        cdef object snapshot = endpoint.snapshot  # for the whole request: ranks belong to one
        cdef AdmissionControl admission = endpoint._admission
        cdef Reader reader = endpoint._core._reader
        cdef double now = endpoint.seconds(), began = 0
        cdef double left_s = endpoint._processor_s, allowed_s = endpoint._tmax_s
        cdef int64_t number
        cdef Proposal proposal
        cdef object request, decided, tmax
        self._messages = self._receive = None
        self._state = COMMITTING
        admission.has_body(endpoint._share, self._started, now)
        endpoint._calls += 1
        self._is_timed = endpoint._calls % TIMED_ONE_IN == 0
        self._step_began = now
        if PyBytes_GET_SIZE(body) > LARGE:
            began = sb_clock(CLOCK_THREAD_CPUTIME_ID) * 1e-9  # a system call
        request = endpoint.decoded(body)
        if began:
            left_s += began - sb_clock(CLOCK_THREAD_CPUTIME_ID) * 1e-9
            left_s = max(left_s, LEAST_SHARE * endpoint._processor_s)
        self.end_step(endpoint._decoding)
        self._is_test = endpoint._counts.count(reader, request)
        if self._is_test:
            endpoint._request_stats.test(request)
        tmax = reader.get(request, BIDREQUEST_TMAX)
        if tmax is not None and integer(tmax, &number) and 0 < number <= MOST_MS:
            allowed_s = number / 1000.0
        now = endpoint.seconds()
        self._deadline = self._started - admission.waited_s + allowed_s
        if now > self._deadline:
            return self.end(LATE)
        self._deadline -= MARGIN_S if allowed_s > 2 * MARGIN_S else allowed_s / 2
        decided = propose(
            request, endpoint._ssp, snapshot, endpoint.now_ms(), self._deadline - now, left_s)
        self.end_step(endpoint._matching)
        if endpoint._counts._wanted > 0 and PyBytes_GET_SIZE(body) <= LARGE:
            endpoint._counts.sample((
                body, request, endpoint._ssp, snapshot, endpoint.now_ms(),
                (<NoBid>decided).reason if type(decided) is NoBid else None))
        if type(decided) is NoBid:
            self.count_read((<NoBid>decided).query)
            if (<NoBid>decided).undecided:
                endpoint._cut_short.add((<NoBid>decided).undecided)
            return self.end((<NoBid>decided).reason)
        proposal = <Proposal>decided
        self.count_read(proposal.decision.query)
        if proposal.undecided:
            endpoint._cut_short.add(proposal.undecided)
        self._snapshot = snapshot
        return self.offer(proposal)

    cdef int count_read(self, Query query) except -1:
        """Count the lists that have meaningless entries, and the request if it is restricted.

        `query`: None if nothing was searched.
        """
        cdef object noted
        if query is None:
            return 0
        noted = query.noted()
        if noted is not None:
            self._endpoint._request_stats.meaningless(noted)
        if query.workspace.request.is_restricted:
            self._endpoint._restricted.add(1)
        return 0

    cdef int offer(self, Proposal proposal) except -1:
        """Write the response, and have the ledger remember its bids.

        For a test, the ledger only checks their limits, if they have any.
        """
        cdef BidEndpoint endpoint = self._endpoint
        cdef object verdicts, user = proposal.decision.query.workspace.request.user
        cdef Py_ssize_t proposed = PyList_GET_SIZE(proposal.choices)
        cdef list bids
        self._auction_id, self._bids = proposal.auction_id, proposal.bids
        self._currency = currency_of(proposal.decision)
        self._stamp = self.click_stamp(proposal.decision, proposal.bids)
        self._response = self.written(proposal.bids)
        if proposed > PyList_GET_SIZE(proposal.bids):
            endpoint._cut_short.add(proposed - PyList_GET_SIZE(proposal.bids))
        if endpoint._log is not None:
            self._began_ms = endpoint._log.begin(PyList_GET_SIZE(proposal.bids))
        if proposal.limited or endpoint._log is not None:
            self._proposal = proposal  # otherwise its memory is freed for other requests
        if self._is_test and not proposal.limited:
            self._is_timed = False  # there is no commit
            return self.keep()
        bids = as_ledger_bids(proposal.bids)
        if self._is_test:
            verdicts = endpoint._ledger.look(
                self.auction(), bids, user, self._deadline - endpoint.seconds())
        else:
            verdicts = endpoint._ledger.remember(
                self.auction(), endpoint._number, bids, user, self._deadline - endpoint.seconds())
            if verdicts is None:
                if endpoint._log is not None:
                    endpoint._log.end(PyList_GET_SIZE(proposal.bids))
                    self._began_ms = None
                return self.end(STORE_DOWN)
        return self.wait_for(COMMITTING, verdicts)

    cdef bytes auction(self):
        """Return the auction's id in the ledger; for signed bids, with their family's prefix."""
        cdef bytes family = self._endpoint._family, auction = self._auction_id.encode()
        return family + auction if PyBytes_GET_SIZE(family) else auction

    cdef bytes written(self, list bids):
        return self._endpoint._writer.write(
            self._auction_id, bids, self._currency, None, self._stamp)

    cdef ClickStamp click_stamp(self, Decision decision, list bids):
        """Return the stamp of the click ids; None without click ids or a signer, or for a test."""
        cdef BidEndpoint endpoint = self._endpoint
        cdef RequestReading reading = decision.query.workspace.request
        cdef ClickSigner signer
        cdef bint permitted
        cdef Bid bid
        for bid in bids:
            if PyBytes_GET_SIZE(bid.template.click):
                signer = decision.lookups.click_signer
                if signer is None or self._is_test:  # a test's clicks count for nothing
                    return None
                permitted = reading.permits_user_data()
                return signer.stamp(endpoint._number, endpoint.now_ms(), permitted,
                                    <int64_t>reading.clicker(signer.persons) if permitted else 0)
        return None

    cdef int has_verdicts(self, object verdicts) except -1:
        cdef BidEndpoint endpoint = self._endpoint
        if not PyUnicode_Check(verdicts):
            raise TypeError("verdicts must be text")
        if all_kept(verdicts):
            return self.keep()
        if PyUnicode_GET_LENGTH(verdicts):
            if self._proposal is None:
                self._state = REPLACING
                return self.has_replaced(without_refused(self._bids, verdicts))
            return self.wait_for(REPLACING, replace_refused(
                endpoint._writer, endpoint._ledger, endpoint._number, endpoint._ssp,
                self.auction(), self._proposal, self._snapshot, verdicts, self.left_s,
                self._is_test))
        return self.end(LATE)

    def left_s(self):
        return self._deadline - self._endpoint.seconds()

    cdef int has_replaced(self, object kept) except -1:
        """Answer with the bids that the ledger kept, or with the reason why it kept none."""
        if not PyList_CheckExact(kept):
            return self.end(kept)
        if self._proposal is not None:
            self._stamp = self.click_stamp(self._proposal.decision, <list>kept)
        body = self.written(<list>kept)
        self.log_bids(<list>kept)
        return self.end(body)

    cdef int keep(self) except -1:
        """Answer with the response as written: all bids were kept."""
        cdef BidEndpoint endpoint = self._endpoint
        self.log_bids(self._bids)
        if endpoint._log is not None:
            endpoint._log.end(PyList_GET_SIZE(self._bids))
            self._began_ms = None
        return self.end(self._response)

    cdef int log_bids(self, list bids) except -1:
        """Write the bids to the auction log."""
        cdef BidEndpoint endpoint = self._endpoint
        if endpoint._log is not None:
            endpoint._log.bids(
                self._began_ms, endpoint._source, self._proposal.decision.query.request, bids,
                self._currency, self._is_test)
        return 0

    cdef int end(self, object result) except -1:
        """Set the answer. `result`: the response's body, or the reason for no bid."""
        cdef BidEndpoint endpoint = self._endpoint
        cdef Outcome outcome
        self.end_log_rows()
        if result is self._response or self._state == REPLACING and result is not LATE:
            self.end_step(endpoint._committing)
        self._is_admitted = False  # the outcome frees the share
        self._state = OVER
        if not PyBytes_CheckExact(result):
            outcome = endpoint._no_bids[result]
            outcome.end(endpoint.seconds() - self._started)
            self._result = NO_CONTENT
            return 0
        endpoint._bid_made.end(endpoint.seconds() - self._started)
        self._result = self.compressed(result) if GZIP_FROM < PyBytes_GET_SIZE(result) <= GZIP_TO \
            else None
        if self._result is None:
            self._result = Answer(start_of(PyBytes_GET_SIZE(result)),
                                  {"type": "http.response.body", "body": result})
        return 0

    cdef object compressed(self, bytes body):
        """Return the compressed answer; None if no encoding is accepted or compressing takes too
        long."""
        cdef object accepted = last_value(self._headers, b"accept-encoding"), encoding, compressed
        encoding = accepted_encoding(accepted) if accepted else None
        compressed = None if encoding is None else compress(body, encoding)
        if compressed is None:
            return None
        return answer(200, compressed, JSON, ((b"content-encoding", encoding.encode()),))

    cdef int end_log_rows(self) except -1:
        """Have the auction log count unsent bids as ended, once the ledger is certain about them.

        Until these bids are rolled back, the ledger may count them.
        """
        cdef BidEndpoint endpoint = self._endpoint
        if endpoint._log is not None and self._began_ms is not None and self._bids is not None:
            self._began_ms = None
            endpoint._ledger.when_certain(
                partial(endpoint._log.end, PyList_GET_SIZE(self._bids)))
        return 0

    cdef int end_step(self, Histogram of) except -1:
        cdef double now
        if self._is_timed:
            now = self._endpoint.seconds()
            of.take(now - self._step_began)
            self._step_began = now
        return 0

    cdef int fail(self, error) except -1:
        """End the request with an error, which the caller raises.

        Raises BodyTimeout instead if the error is due to a late body.
        """
        cdef BidEndpoint endpoint = self._endpoint
        cdef State state = self._state
        if state == OVER:
            return 0
        self._state = OVER
        if not self._is_admitted:
            return 0
        if state == READING or state == READING_ON:
            endpoint._admission.has_body(endpoint._share, self._started, endpoint.seconds())
        self._is_admitted = False
        endpoint._admission.end(endpoint._share)
        self.end_log_rows()
        if state == READING and isinstance(error, CancelledError) \
                and self._messages is not None and self._messages.late:
            error = BodyTimeout()
            endpoint.count_failure(error)
            raise error from None
        endpoint.count_failure(error)
        return 0


cdef object _exception(kind, value):
    if isinstance(kind, BaseException):
        return kind
    if isinstance(value, BaseException):
        return value
    return kind() if value is None else kind(value)
