"""Headers of a bid request; see `_head.pyi`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.string cimport memcmp

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t index)

cdef enum:
    MAX_DIGITS = 18

cdef inline bint is_name(bytes name, const char *text, Py_ssize_t size) noexcept:
    return PyBytes_GET_SIZE(name) == size and memcmp(PyBytes_AS_STRING(name), text, size) == 0


cdef inline bint is_field(object field) noexcept:
    """Return whether a header is a pair of bytes."""
    return (PyTuple_CheckExact(field) and PyTuple_GET_SIZE(field) == 2
            and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(field, 0))
            and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(field, 1)))


cdef inline bint is_json(bytes value) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
    cdef const char *text = PyBytes_AS_STRING(value)
    return (size >= 16 and memcmp(text, b"application/json", 16) == 0
            and (size == 16 or text[16] == b";"))


cdef inline Py_ssize_t length_of(bytes value) noexcept:
    """Parse a Content-Length; -1 for anything but digits."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(value), index, length = 0
    cdef const char *text = PyBytes_AS_STRING(value)
    if not 0 < size <= MAX_DIGITS:
        return -1
    for index in range(size):
        if not 48 <= text[index] <= 57:
            return -1
        length = 10 * length + text[index] - 48
    return length


cdef inline Py_ssize_t stated_length(object headers) except -2:
    """See `plain_length`."""
    cdef Py_ssize_t length = -1, size
    cdef bint typed = False
    cdef bytes name, value
    if not PyList_CheckExact(headers):
        return -1
    for field in <list>headers:
        if not is_field(field):
            return -1
        name, value = <object>PyTuple_GET_ITEM(field, 0), <object>PyTuple_GET_ITEM(field, 1)
        size = PyBytes_GET_SIZE(name)
        if size == 12 and is_name(name, b"content-type", 12):
            if typed or not is_json(value):
                return -1
            typed = True
        elif size == 14 and is_name(name, b"content-length", 14):
            if length >= 0:
                return -1
            length = length_of(value)
            if length < 0:
                return -1
        elif size == 16 and is_name(name, b"content-encoding", 16):
            return -1
    return length if typed else -1


cdef inline object last_value(object headers, bytes name):
    """See `value_of`."""
    cdef object found = b""
    for key, value in headers:
        if key == name:
            found = value
    return found
