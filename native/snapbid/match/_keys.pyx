# cython: auto_pickle=False, autotestdict=False

cdef extern from "keys.h":
    bint sb_may_repeat_keys(const char *text, size_t length) nogil


def may_repeat_keys(bytes text not None):
    return sb_may_repeat_keys(text, len(text))
