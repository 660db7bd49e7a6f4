# cython: auto_pickle=False, autotestdict=False
"""Run requests without a task for each; see `_running.pyi`."""

from asyncio import get_running_loop
from collections import deque

cimport cython
from cpython.object cimport PyObject

from snapbid.redisclient._wire cimport Reply, Waiter

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object value, PyObject **result) except PYGEN_ERROR
    void Py_DECREF(PyObject *)

cdef int _IN_TASK = 0
cdef int _AT_ONCE = 1
cdef int _BEHIND = 2
cdef int _MOST_BEHIND = 256
cdef int _SLICE = 64

IN_TASK, AT_ONCE, BEHIND = _IN_TASK, _AT_ONCE, _BEHIND
MOST_BEHIND, SLICE = _MOST_BEHIND, _SLICE


@cython.final
cdef class _Running(Waiter):
    """A runner of a request's coroutine, called back by each future that the coroutine awaits."""

    cdef object _coroutine, _watcher
    cdef RequestRunner _runner  # set for a BEHIND request

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
        """Register as a callback of the future that the coroutine awaits (PEP 3156)."""
        try:
            if type(awaited) is Reply:
                (<Reply>awaited).is_blocking = False
                return (<Reply>awaited).call_back(self)
            if awaited is None:  # asyncio.sleep(0)
                get_running_loop().call_soon(self, None)
                return 0
            if not getattr(awaited, "_asyncio_future_blocking", None):
                raise RuntimeError("a request may only await futures")
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self)
        except Exception as error:
            return self.throw(error)
        return 0

    cdef int end(self) except -1:
        watcher, self._watcher, self._coroutine = self._watcher, None, None
        watcher.done()
        return self.free_slot()

    cdef int fail(self, error) except -1:
        watcher, self._watcher, self._coroutine = self._watcher, None, None
        watcher.err(error)
        return self.free_slot()

    cdef int free_slot(self) except -1:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner._running -= 1
            runner.schedule_next()
        return 0


@cython.final
cdef class RequestRunner:
    cdef object _loop, _application, _kind_of, _in_task
    cdef list _waiting
    cdef object _behind, _tasks  # of (watcher, scope); of watchers
    cdef int _running  # BEHIND requests in progress
    cdef bint _is_scheduled

    def __init__(self, loop, application, kind_of, in_task):
        self._loop, self._application = loop, application
        self._kind_of, self._in_task = kind_of, in_task
        self._waiting = []
        self._behind, self._tasks = deque(), deque()

    def schedule(self, watcher):
        self._waiting.append(watcher)
        if len(self._waiting) == 1:
            self._loop.call_soon_threadsafe(self.start)

    def start(self):
        cdef list waiting = self._waiting
        cdef int kind
        self._waiting = []
        for watcher in waiting:
            try:
                scope = watcher.scope
                kind = self._kind_of(scope["path"])
                if kind == _AT_ONCE:
                    self.run(watcher, scope, None)
                elif kind == _BEHIND:
                    self._behind.append((watcher, scope))
                else:
                    self._tasks.append(watcher)
            except Exception as error:
                watcher.err(error)
        if not self._is_scheduled:
            self.start_next()

    def start_scheduled(self):
        self._is_scheduled = False
        self.start_next()

    cdef int start_next(self) except -1:
        """Start a slice of the queued requests and tasks, and schedule the next one."""
        cdef int begun = 0
        while self._behind and self._running < _MOST_BEHIND and begun < _SLICE:
            begun += 1
            watcher, scope = self._behind.popleft()
            self._running += 1
            self.run(watcher, scope, self)
        begun = 0
        while self._tasks and begun < _SLICE:
            begun += 1
            watcher = self._tasks.popleft()
            try:
                watcher.taskref(self._loop.create_task(self._in_task(watcher)))
            except Exception as error:
                watcher.err(error)
        return self.schedule_next()

    cdef int schedule_next(self) except -1:
        """Schedule the next slice for the loop's next iteration, if any request may start."""
        if self._is_scheduled:
            return 0
        if self._tasks or (self._behind and self._running < _MOST_BEHIND):
            self._is_scheduled = True
            self._loop.call_soon(self.start_scheduled)
        return 0

    cdef int run(self, watcher, scope, RequestRunner runner) except -1:
        cdef _Running running = _Running.__new__(_Running)
        running._watcher, running._runner = watcher, runner
        try:
            protocol = watcher.proto
            running._coroutine = self._application(scope, protocol.receive, protocol.send)
        except Exception as error:
            return running.fail(error)
        return running.go_on()
