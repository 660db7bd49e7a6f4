# cython: auto_pickle=False, autotestdict=False
"""Parameters of a query string; see `_query.pyi`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp


cdef inline int digit(char character) noexcept:
    """Return the value of a hexadecimal digit; -1 for any other byte."""
    if 48 <= character <= 57:
        return character - 48
    if 65 <= character <= 70:
        return character - 55
    if 97 <= character <= 102:
        return character - 87
    return -1


cdef Py_ssize_t unquote(char *at, const char *text, Py_ssize_t size) noexcept:
    """Decode percent escapes into `at`, which holds at least `size` bytes; return the decoded size.
    """
    cdef Py_ssize_t index = 0, written = 0
    while index < size:
        if (text[index] == b"%" and size - index > 2
                and digit(text[index + 1]) >= 0 and digit(text[index + 2]) >= 0):
            at[written] = <char>(digit(text[index + 1]) << 4 | digit(text[index + 2]))
            index += 3
        else:
            at[written] = text[index]
            index += 1
        written += 1
    return written


cdef bytes value_of(const char *text, Py_ssize_t size):
    cdef bytes value
    cdef Py_ssize_t written
    if memchr(text, 37, size) == NULL:
        return PyBytes_FromStringAndSize(text, size)
    value = PyBytes_FromStringAndSize(NULL, size)
    written = unquote(PyBytes_AS_STRING(value), text, size)
    return value if written == size else PyBytes_FromStringAndSize(PyBytes_AS_STRING(value), written)


def first_values(bytes query not None, tuple names not None):
    cdef const char *at = PyBytes_AS_STRING(query)
    cdef const char *end = at + PyBytes_GET_SIZE(query)
    cdef const char *stop
    cdef const char *equals
    cdef Py_ssize_t size, number, count = len(names)
    cdef bytes name
    cdef list values = [None] * count
    while at <= end:
        stop = <const char *>memchr(at, 38, end - at)
        if stop == NULL:
            stop = end
        equals = <const char *>memchr(at, 61, stop - at)
        size = (stop if equals == NULL else equals) - at
        for number in range(count):
            name = names[number]
            if name is None:
                raise TypeError("names must be bytes")
            if (values[number] is None and PyBytes_GET_SIZE(name) == size
                    and memcmp(PyBytes_AS_STRING(name), at, size) == 0):
                values[number] = b"" if equals == NULL else value_of(equals + 1, stop - equals - 1)
        at = stop + 1
    for number in range(count):
        if values[number] is None:
            values[number] = b""
    return values
