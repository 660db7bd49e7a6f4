"""Commands and futures for their replies; see _wire.pyi."""

cdef enum ReplyState:
    PENDING, DONE, FAILED, CANCELLED


cdef class Waiter:
    """Base of native callbacks for a reply, called without entering a `contextvars` context.

    Subclasses must also be callable from Python, and must not raise.
    """

    cdef int take(self, Reply reply) except -1


cdef class Turn:
    cdef object _loop
    cdef list _ready
    cdef bint _is_open


cdef class Reply:
    cdef Turn _turn
    cdef object _result
    cdef object _callbacks  # a Waiter, a (callback, context) pair, or a list of pairs
    cdef int _state
    cdef bint is_blocking

    cdef int call_back(self, Waiter waiter) except -1
    cdef int set(self, int state, result) except -1
    cdef int wake(self) except -1
    cdef int wake_later(self) except -1
    cdef int check(self) except -1


cdef inline bint is_pending(object done) except -1:
    """Return whether a reply or a future is pending."""
    return (<Reply>done)._state == PENDING if type(done) is Reply else not done.done()


cdef inline bint resolve(object done, object result) except -1:
    """Set the result of a reply or a future; return whether it was pending."""
    if not is_pending(done):
        return False
    if type(done) is Reply:
        (<Reply>done).set(DONE, result)
    else:
        done.set_result(result)
    return True
