# cython: auto_pickle=False, autotestdict=False
"""Requests that run without a task, as `_running.pyi` describes it."""

from asyncio import get_running_loop

cimport cython
from cpython.object cimport PyObject

from snapbid.ledger._replies cimport Reply, Waiter

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR
    void Py_DECREF(PyObject *)


@cython.final
cdef class _Running(Waiter):
    """A request's coroutine; as a callback, it goes on with what it awaited."""

    cdef object _coroutine, _watcher

    def __call__(self, awaited):
        if self._coroutine is None:
            return
        try:
            if awaited is not None:
                awaited.result()
        except BaseException as error:
            self.throw(error)
        else:
            self.go_on()

    cdef int take(self, Reply reply) except -1:
        return 0 if self._coroutine is None else self.go_on()

    cdef int go_on(self) except -1:
        cdef PyObject *result = NULL
        cdef PySendResult state
        cdef object awaited
        try:
            state = PyIter_Send(self._coroutine, None, &result)
            awaited = <object>result
            Py_DECREF(result)
        except BaseException as error:
            return self.fail(error)
        if state == PYGEN_RETURN:
            return self.end()
        return self.wait_for(awaited)

    cdef int throw(self, error) except -1:
        try:
            awaited = self._coroutine.throw(error)
        except StopIteration:
            return self.end()
        except BaseException as own:
            return self.fail(own)
        return self.wait_for(awaited)

    cdef int wait_for(self, awaited) except -1:
        """Be called back by a future (PEP 3156), which is what a coroutine gives."""
        try:
            if type(awaited) is Reply:
                (<Reply>awaited).is_blocking = False
                return (<Reply>awaited).call_back(self)
            if awaited is None:  # it has had its turn
                get_running_loop().call_soon(self, None)
                return 0
            if not getattr(awaited, "_asyncio_future_blocking", None):
                raise RuntimeError("a request yields what is no future")
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self)
        except Exception as error:
            return self.throw(error)
        return 0

    cdef int end(self) except -1:
        watcher, self._watcher, self._coroutine = self._watcher, None, None
        watcher.done()
        return 0

    cdef int fail(self, error) except -1:
        watcher, self._watcher, self._coroutine = self._watcher, None, None
        watcher.err(error)
        return 0


@cython.final
cdef class RequestRunner:
    cdef object _loop, _application, _is_short, _in_task
    cdef list _waiting

    def __init__(self, loop, application, is_short, in_task):
        self._loop, self._application = loop, application
        self._is_short, self._in_task = is_short, in_task
        self._waiting = []

    def schedule(self, watcher):
        self._waiting.append(watcher)
        if len(self._waiting) == 1:
            self._loop.call_soon_threadsafe(self.start)

    def start(self):
        cdef _Running running
        cdef list waiting = self._waiting
        self._waiting = []
        for watcher in waiting:
            try:
                scope = watcher.scope
                if self._is_short(scope["path"]):
                    protocol = watcher.proto
                    running = _Running.__new__(_Running)
                    running._watcher = watcher
                    running._coroutine = self._application(scope, protocol.receive, protocol.send)
                    running.go_on()
                else:
                    watcher.taskref(self._loop.create_task(self._in_task(watcher)))
            except Exception as error:
                watcher.err(error)
