# cython: auto_pickle=False, autotestdict=False
"""A clock around the steps of the product's own search, which are C functions that Python cannot
call; the product's matcher stays free of it.
"""

from libc.stdint cimport int64_t, uint64_t

from snapbid.catalog._index cimport Query, Workspace

cdef extern from *:
    """
    #include <time.h>
    static inline int64_t sb_now_ns(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return now.tv_sec * 1000000000LL + now.tv_nsec;
    }
    """
    enum: CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID
    int64_t sb_now_ns(int clock)

STEPS = ("request", "impression", "walk")


cdef int repeat(Query query, int step) except -1:
    """Take one of STEPS once more, of a query whose impression is set."""
    cdef Workspace workspace = query.workspace
    if step == 0:
        workspace.request.read(workspace.request.lookups, workspace.request.reader,
                               workspace.request.request, workspace.request.ssp,
                               workspace.request.canonical, workspace.request.asker.now_ms,
                               &query.index.interest)
        workspace.base.take_request(workspace.request, &query.allowance)
    elif step == 1:
        workspace.impression.read(query.imp, None)
        workspace.base.take_impression(workspace.impression)
    elif step == 2:
        workspace.base.rewind()
        workspace.base.find()
        if workspace.base.n_matches:
            workspace.base.take()
    return 0


def measure(list queries not None, str step not None, int times):
    """Processor time of this thread, ns, that a step takes: all queries, each `times` in a row."""
    cdef int number = STEPS.index(step), i
    cdef Query query
    cdef int64_t start = sb_now_ns(CLOCK_THREAD_CPUTIME_ID)
    for query in queries:
        for i in range(times):
            repeat(query, number)
    return sb_now_ns(CLOCK_THREAD_CPUTIME_ID) - start


def measure_cold(list queries not None, str step not None, const unsigned char[::1] flush not None,
                 bint after):
    """Wall-clock time, ns, of a step by query. Reading the buffer `flush` before each query empties
    the processor's caches; `after`: the steps before this one run in between.
    """
    cdef int number = STEPS.index(step), i
    cdef Query query
    cdef int64_t start
    cdef list times = []
    cdef uint64_t total = 0
    cdef Py_ssize_t offset
    for query in queries:
        for offset in range(0, flush.shape[0], 64):
            total += flush[offset]
        for i in range(number if after else 0):
            repeat(query, i)
        start = sb_now_ns(CLOCK_MONOTONIC) + (total & 0)
        repeat(query, number)
        times.append(sb_now_ns(CLOCK_MONOTONIC) - start)
    return times
