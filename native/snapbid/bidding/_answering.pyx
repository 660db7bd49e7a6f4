# cython: auto_pickle=False, autotestdict=False
"""The bid path, from a request's headers to its answer; see `_answering.pyi`.

    headers, body -> request -> proposal -> response -> the ledger's verdicts -> answer

`BidCall` is a coroutine, written as a state machine. Rare steps are Python: methods of the
endpoint, some of them coroutines, which are then awaited.
"""

from asyncio import CancelledError

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject

from allowance cimport CLOCK_THREAD_CPUTIME_ID, sb_clock
from snapbid.bidding._admission cimport AdmissionControl
from snapbid.bidding._bids cimport as_ledger_bids
from snapbid.bidding._decision cimport SnapshotCore, NoBid, Proposal
from snapbid.bidding._endpoint cimport EndpointCore
from snapbid.bidding._head cimport last_value, stated_length
from snapbid.bidding._outcome cimport Outcome
from snapbid.catalog._reader cimport *
from snapbid.metrics._cells cimport Histogram

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR
    void Py_DECREF(PyObject *)
    Py_ssize_t PySet_GET_SIZE(object items)
    void PyErr_SetObject(object kind, object value)

cdef enum State:
    NEW
    LEAVING  # skipping the body, after an overload
    READING  # the body's first message
    READING_ON  # the body, by a coroutine
    COMMITTING  # waiting for the ledger's verdicts
    REPLACING  # replacing bids that it refused, by a coroutine
    OVER

cdef enum:
    TIMED_ONE_IN = 16  # one request in so many has its steps measured
    MOST_MS = 0x7fffffff  # of `tmax`: OpenRTB's integers; beyond, it counts as absent

cdef double MARGIN_S = 0.01  # of `tmax`, reserved for the answer's transit
cdef double LEAST_SHARE = 0.2  # of a request's processor time, left for the search after decoding

cdef object _OVER = object()
cdef str BODY = "body"


cdef inline bint all_kept(object verdicts, unsigned char kept) except -1:
    """Return whether there are verdicts, and all of them are `kept`."""
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
        if <unsigned char>letters[index] != kept:
            return False
    return True


cdef class BidAnswering(EndpointCore):

    def __call__(self, headers, receive):
        cdef BidCall call = BidCall.__new__(BidCall)
        call._endpoint, call._headers, call._receive = self, headers, receive
        return call


@cython.final
@cython.freelist(256)
cdef class BidCall:
    cdef BidAnswering _endpoint
    cdef object _headers, _receive
    cdef State _state
    cdef object _awaited  # the iterator of what is being awaited
    cdef object _coming, _messages  # the body's first message; where its deadline is kept
    cdef Py_ssize_t _length
    cdef double _started, _deadline, _step_began
    cdef bint _is_timed, _is_test, _is_admitted
    cdef bytes _response
    cdef Proposal _proposal
    cdef SnapshotCore _snapshot
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
        """Pass on the awaited value, and run to the next await; return its yield, or _OVER."""
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
        """Pass on an error of what was awaited; otherwise as `go_on`."""
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
        cdef BidAnswering endpoint = self._endpoint
        cdef AdmissionControl admission = endpoint._admission
        self._started = endpoint.seconds()
        if not admission.enter(endpoint._share, self._started):
            return self.wait_for(LEAVING, endpoint.leave(self._headers, self._receive))
        self._is_admitted = True
        self._state = READING  # from here on, its body is awaited
        self._length = stated_length(self._headers)
        if not 0 <= self._length <= endpoint._max_bytes:
            return self.wait_for(
                READING_ON, endpoint.read_closely(self._headers, self._receive))
        self._messages = endpoint._body_deadline.current
        self._coming = self._receive()
        PyDict_SetItem(self._messages, self._coming, None)
        return self.wait_for(READING, self._coming)

    cdef int wait_for(self, State state, object awaitable) except -1:
        self._state, self._awaited = state, awaitable.__await__()
        return 0

    cdef int take(self, object given) except -1:
        """Take the result of what was awaited in this state."""
        cdef BidAnswering endpoint = self._endpoint
        cdef PyObject *found
        if self._state == READING:
            PyDict_DelItem(self._messages, self._coming)
            self._coming = None
            found = PyDict_GetItem(given, BODY)
            if found is not NULL and PyBytes_CheckExact(<object>found) \
                    and PyBytes_GET_SIZE(<object>found) == self._length:
                return self.has_body(<bytes><object>found)
            return self.wait_for(READING_ON, endpoint.read_rest(
                given, self._receive, self._length, self._messages))
        if self._state == READING_ON:
            return self.has_body(<bytes?>given)
        if self._state == COMMITTING:
            return self.has_verdicts(given)
        if self._state == REPLACING:
            return self.end(given)
        # leaving
        self._state = OVER
        self._result = endpoint.no_bid(endpoint._overload)
        return 0

    cdef int has_body(self, bytes body) except -1:
        """Decide on the request, and send the bids to the ledger."""
        cdef BidAnswering endpoint = self._endpoint
        cdef SnapshotCore snapshot = endpoint.snapshot  # for the whole request: ranks belong to one
        cdef AdmissionControl admission = endpoint._admission
        cdef Reader reader = snapshot.lookups
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
        if PyBytes_GET_SIZE(body) > endpoint._large:
            began = sb_clock(CLOCK_THREAD_CPUTIME_ID) * 1e-9  # a system call
        request = endpoint.decoded(body)
        if began:
            left_s += began - sb_clock(CLOCK_THREAD_CPUTIME_ID) * 1e-9
            left_s = max(left_s, LEAST_SHARE * endpoint._processor_s)
        self.end_step(endpoint._decoding)
        self._is_test = endpoint._request_stats.count(reader, request)
        if self._is_test:
            endpoint.test(request)
        tmax = reader.get(request, BIDREQUEST_TMAX)
        if tmax is not None and integer(tmax, &number) and 0 < number <= MOST_MS:
            allowed_s = number / 1000.0
        now = endpoint.seconds()
        self._deadline = self._started - admission.waited_s + allowed_s
        if now > self._deadline:
            return self.end(endpoint._late)
        self._deadline -= MARGIN_S if allowed_s > 2 * MARGIN_S else allowed_s / 2
        decided = endpoint._decider.propose(
            request, endpoint._ssp, snapshot, endpoint.now_ms(), self._deadline - now, left_s)
        self.end_step(endpoint._matching)
        if endpoint._request_stats._wanted > 0 and PyBytes_GET_SIZE(body) <= endpoint._large:
            endpoint._request_stats.sample((
                body, request, endpoint._ssp, snapshot, endpoint.now_ms(),
                (<NoBid>decided).reason if type(decided) is NoBid else None))
        if PySet_GET_SIZE(reader.noted):
            endpoint.note(reader.noted)
        if type(decided) is NoBid:
            if (<NoBid>decided).undecided:
                endpoint.cut_short((<NoBid>decided).undecided)
            return self.end((<NoBid>decided).reason)
        proposal = <Proposal>decided
        if proposal.undecided:
            endpoint.cut_short(proposal.undecided)
        self._snapshot = snapshot
        return self.offer(proposal)

    cdef int offer(self, Proposal proposal) except -1:
        """Write the response, and send its bids to the ledger, unless it is a test without limits.
        """
        cdef BidAnswering endpoint = self._endpoint
        cdef object verdicts, user = proposal.decision.query.workspace.request.user
        cdef Py_ssize_t proposed = PyList_GET_SIZE(proposal.choices)
        cdef bytes auction
        cdef list bids
        self._response = endpoint._writer.write(
            proposal.auction_id, endpoint._ids.next(), proposal.bids,
            "USD" if proposal.decision.lookups.in_usd
            else (<object>proposal.decision.lookups).currency)
        if proposed > PyList_GET_SIZE(proposal.bids):
            endpoint.cut_short(proposed - PyList_GET_SIZE(proposal.bids))
        if endpoint._log is not None:
            self._began_ms = endpoint._log.begin(PyList_GET_SIZE(proposal.bids))
        self._proposal = proposal
        if self._is_test and not proposal.limited:
            self._is_timed = False  # there is no commit
            return self.keep()
        auction, bids = proposal.auction_id.encode(), as_ledger_bids(proposal.bids)
        if self._is_test:
            verdicts = endpoint._ledger.look(
                auction, bids, user, self._deadline - endpoint.seconds())
        else:
            verdicts = endpoint._ledger.remember(
                auction, endpoint._number, bids, user, self._deadline - endpoint.seconds())
            if verdicts is None:
                if endpoint._log is not None:
                    endpoint._log.end(PyList_GET_SIZE(proposal.bids))
                    self._began_ms = None
                return self.end(endpoint._store_down)
        return self.wait_for(COMMITTING, verdicts)

    cdef int has_verdicts(self, object verdicts) except -1:
        cdef BidAnswering endpoint = self._endpoint
        if not PyUnicode_Check(verdicts):
            raise TypeError("verdicts are text")
        if all_kept(verdicts, endpoint._kept):
            return self.keep()
        if PyUnicode_GET_LENGTH(verdicts):
            return self.wait_for(REPLACING, endpoint.replace_refused(
                self._proposal, self._snapshot, verdicts, self._deadline, self._is_test, self._began_ms))
        return self.end(endpoint._late)

    cdef int keep(self) except -1:
        """Answer with the response: all bids are kept."""
        cdef BidAnswering endpoint = self._endpoint
        cdef Proposal proposal = self._proposal
        if endpoint._log is not None:
            endpoint.log_bids(self._began_ms, proposal, proposal.bids, self._is_test)
            endpoint._log.end(PyList_GET_SIZE(proposal.bids))
            self._began_ms = None
        return self.end(self._response)

    cdef int end(self, object result) except -1:
        """Set the answer: the response's body, or the reason for no bid."""
        cdef BidAnswering endpoint = self._endpoint
        cdef Outcome outcome
        cdef object header
        self.end_log_rows()
        if result is self._response or self._state == REPLACING and result is not endpoint._late:
            self.end_step(endpoint._committing)
        self._is_admitted = False  # the outcome frees the share
        self._state = OVER
        if not PyBytes_CheckExact(result):
            outcome = endpoint._no_bids[result]
            outcome.end(endpoint.seconds() - self._started)
            self._result = endpoint._no_content
            return 0
        endpoint._bid_made.end(endpoint.seconds() - self._started)
        if endpoint._gzip_from < PyBytes_GET_SIZE(result) <= endpoint._gzip_to:
            header = last_value(self._headers, b"accept-encoding")
            if header:
                self._result = endpoint.compressed(result, header)
                if self._result is not None:
                    return 0
        self._result = endpoint.answer(<bytes>result)
        return 0

    cdef int end_log_rows(self) except -1:
        """End the log rows of bids that are not answered: they may count until they are rolled
        back.
        """
        cdef BidAnswering endpoint = self._endpoint
        if endpoint._log is not None and self._began_ms is not None and self._proposal is not None:
            self._began_ms = None
            endpoint.end_log(PyList_GET_SIZE(self._proposal.bids))
        return 0

    cdef int end_step(self, Histogram of) except -1:
        cdef double now
        if self._is_timed:
            now = self._endpoint.seconds()
            of.take(now - self._step_began)
            self._step_began = now
        return 0

    cdef int fail(self, error) except -1:
        """End the request with an error, which the caller raises."""
        cdef BidAnswering endpoint = self._endpoint
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
            error = endpoint.body_timeout()
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
