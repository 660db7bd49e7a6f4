"""allowance.h for Cython. Only declarations: nothing is imported at run time."""

from libc.stdint cimport int64_t

cdef extern from "time.h" nogil:
    int CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID

cdef extern from "allowance.h" nogil:
    int64_t sb_clock(int clock)
    ctypedef struct sb_allowance:
        int64_t steps
        bint is_over
    void sb_allow_all(sb_allowance *allowance)
    void sb_allow(sb_allowance *allowance, double left_s, double processor_s)
    bint sb_look(sb_allowance *allowance)
    bint sb_spend(sb_allowance *allowance, int64_t steps)
