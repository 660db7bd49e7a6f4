# cython: auto_pickle=False, autotestdict=False

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *size) except NULL

cdef extern from "markup.h":
    bint sb_may_be_unprotected(const char *text, size_t length) nogil


def may_be_unprotected(str text not None):
    cdef Py_ssize_t size
    cdef const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size)
    return sb_may_be_unprotected(utf8, size)
