# cython: auto_pickle=False, autotestdict=False
"""Commands in the Redis protocol, and futures for their replies; see `_wire.pyi`."""

from asyncio import CancelledError, InvalidStateError, current_task

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

cdef extern from "Python.h":
    void PyErr_SetObject(object kind, object value)
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

# -- commands --------------------------------------------------------------------------------------

cdef struct Argument:
    const char *text  # borrowed from the argument; NULL for a number
    Py_ssize_t size
    long long number


cdef inline Py_ssize_t digits(unsigned long long number) noexcept:
    cdef Py_ssize_t size = 1
    while number >= 10:
        number //= 10
        size += 1
    return size


cdef inline char *put_digits(char *at, unsigned long long number, Py_ssize_t size) noexcept:
    cdef Py_ssize_t index
    for index in range(size - 1, -1, -1):
        at[index] = <char>(48 + number % 10)
        number //= 10
    return at + size


cdef inline char *put_head(char *at, char kind, Py_ssize_t size) noexcept:
    at[0] = kind
    at = put_digits(at + 1, size, digits(size))
    at[0], at[1] = 13, 10
    return at + 2


cdef inline unsigned long long magnitude(long long number) noexcept:
    return <unsigned long long>number if number >= 0 else -<unsigned long long>number


cdef Py_ssize_t read(object value, Argument *argument) except -1:
    """Convert an argument; return its encoded size."""
    argument.text = NULL
    if isinstance(value, bytes):
        argument.text, argument.size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    elif isinstance(value, str):
        argument.text = PyUnicode_AsUTF8AndSize(value, &argument.size)
    elif isinstance(value, int):
        argument.number = value
        argument.size = digits(magnitude(argument.number)) + (argument.number < 0)
    else:
        raise TypeError(f"arguments must be bytes, str or int, not {type(value).__name__}")
    return 5 + digits(argument.size) + argument.size


cdef void write(char *at, const Argument *arguments, Py_ssize_t count) noexcept:
    cdef const Argument *argument
    cdef Py_ssize_t index, size
    at = put_head(at, b"*", count)
    for index in range(count):
        argument = arguments + index
        size = argument.size
        at = put_head(at, b"$", size)
        if argument.text != NULL:
            memcpy(at, argument.text, size)
            at += size
        else:
            if argument.number < 0:
                at[0] = b"-"
                at, size = at + 1, size - 1
            at = put_digits(at, magnitude(argument.number), size)
        at[0], at[1] = 13, 10
        at += 2


def pack_command(tuple command not None):
    cdef Py_ssize_t count = len(command), index, size = 3 + digits(len(command))
    cdef Argument *arguments = <Argument *>PyMem_Malloc((count or 1) * sizeof(Argument))
    cdef bytes packed
    if arguments == NULL:
        raise MemoryError
    try:
        for index in range(count):
            size += read(command[index], arguments + index)
        packed = PyBytes_FromStringAndSize(NULL, size)
        write(PyBytes_AS_STRING(packed), arguments, count)
        return packed
    finally:
        PyMem_Free(arguments)


# -- replies ---------------------------------------------------------------------------------------

def unanswered(list requests not None):
    return [request for request in requests if is_pending(request.done)]


def answer(list requests not None, results not None):
    for request, result in zip(requests, results, strict=True):
        resolve(request.done, result)


cdef class Waiter:

    cdef int take(self, Reply reply) except -1:
        raise NotImplementedError


@cython.final
cdef class Turn:

    def __init__(self, loop):
        self._loop = loop
        self._ready = []

    def begin(self):
        self._is_open = True

    def end(self):
        cdef list ready = self._ready
        cdef Reply reply
        self._is_open = False
        if not ready:
            return
        self._ready = []
        if current_task(self._loop) is not None:  # tasks must not be entered within another
            for reply in ready:
                reply.wake_later()
        else:
            for reply in ready:
                reply.wake()

    def reply(self):
        cdef Reply reply = Reply.__new__(Reply)
        reply._turn = self
        return reply


@cython.final
@cython.freelist(256)
cdef class Reply:

    # -- setting ----------------------------------------------------------------------------------

    def done(self):
        return self._state != PENDING

    def set_result(self, result):
        self.set(DONE, result)

    def set_exception(self, error):
        self.set(FAILED, error)

    cdef int set(self, int state, result) except -1:
        if self._state != PENDING:
            raise InvalidStateError("the reply is already set")
        self._result, self._state = result, state
        if self._turn._is_open:
            self._turn._ready.append(self)
        else:
            self.wake_later()
        return 0

    def cancel(self, msg=None):
        if self._state != PENDING:
            return False
        self._state = CANCELLED
        self.wake_later()
        return True

    cdef int wake(self) except -1:
        """Call the callbacks now."""
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is None:
            return 0
        if isinstance(callbacks, Waiter):
            return (<Waiter>callbacks).take(self)
        for callback, context in (callbacks if type(callbacks) is list else (callbacks,)):
            if context is not None:
                try:
                    PyContext_Enter(context)
                except RuntimeError:  # the context has already been entered
                    self._turn._loop.call_soon(callback, self, context=context)
                    continue
            try:
                callback(self)
            except BaseException as error:
                self._turn._loop.call_exception_handler(
                    {"message": f"in callback {callback!r}", "exception": error, "future": self})
                if not isinstance(error, Exception):
                    raise
            finally:
                if context is not None:
                    PyContext_Exit(context)
        return 0

    cdef int wake_later(self) except -1:
        """Call the callbacks in the loop's next iteration."""
        callbacks, self._callbacks = self._callbacks, None
        if isinstance(callbacks, Waiter):
            self._turn._loop.call_soon(callbacks, self)
        elif callbacks is not None:
            for callback, context in (callbacks if type(callbacks) is list else (callbacks,)):
                self._turn._loop.call_soon(callback, self, context=context)
        return 0

    # -- awaiting (the interface of asyncio.Future) -----------------------------------------------

    @property
    def _asyncio_future_blocking(self):
        return self.is_blocking

    @_asyncio_future_blocking.setter
    def _asyncio_future_blocking(self, bint value):
        self.is_blocking = value

    def get_loop(self):
        return self._turn._loop

    def cancelled(self):
        return self._state == CANCELLED

    def exception(self):
        self.check()
        return self._result if self._state == FAILED else None

    def result(self):
        self.check()
        if self._state == FAILED:
            raise self._result
        return self._result

    cdef int check(self) except -1:
        if self._state == PENDING:
            raise InvalidStateError("the reply is not set yet")
        if self._state == CANCELLED:
            raise CancelledError
        return 0

    cdef int call_back(self, Waiter waiter) except -1:
        """Register a native callback; `wake` calls it natively if it is the only callback."""
        if self._callbacks is not None or self._state == CANCELLED or (
                self._state != PENDING and not self._turn._is_open):
            self.add_done_callback(waiter)
        else:
            self._callbacks = waiter
        return 0

    def add_done_callback(self, callback, *, context=None):
        if isinstance(self._callbacks, Waiter):
            self._callbacks = self._callbacks, None
        if self._state != PENDING and not (self._turn._is_open and self._state != CANCELLED):
            self._turn._loop.call_soon(callback, self, context=context)
        elif self._callbacks is None:
            self._callbacks = callback, context
        elif type(self._callbacks) is list:
            (<list>self._callbacks).append((callback, context))
        else:
            self._callbacks = [self._callbacks, (callback, context)]

    def remove_done_callback(self, callback):
        callbacks = self._callbacks
        if callbacks is None:
            return 0
        if isinstance(callbacks, Waiter):
            callbacks = callbacks, None
        if type(callbacks) is not list:
            callbacks = [callbacks]
        kept = [pair for pair in callbacks if pair[0] != callback]
        self._callbacks = kept or None
        return len(callbacks) - len(kept)

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        if self._state == PENDING:
            self.is_blocking = True
            return self
        result = self.result()
        if isinstance(result, (tuple, BaseException)):
            raise StopIteration(result)
        PyErr_SetObject(StopIteration, result)
        raise StopIteration  # raises the error set above, without a traceback
