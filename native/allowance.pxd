"""allowance.h for Cython. Only declarations: nothing is imported when the modules run."""

from libc.stdint cimport int64_t

cdef extern from "allowance.h" nogil:
    ctypedef struct sb_allowance:
        int64_t steps
        bint is_over
    void sb_allow_all(sb_allowance *allowance)
    void sb_allow(sb_allowance *allowance, double left_s, double processor_s)
    bint sb_look(sb_allowance *allowance)
    bint sb_spend(sb_allowance *allowance, int64_t steps)
