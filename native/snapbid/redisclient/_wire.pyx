# cython: auto_pickle=False, autotestdict=False
"""Encode commands in the Redis protocol (`snapbid/redisclient/wire.py`)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

cdef struct Argument:
    const char *text  # borrowed from the argument; NULL: it is a number
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
    """Read an argument; return its encoded size."""
    argument.text = NULL
    if isinstance(value, bytes):
        argument.text, argument.size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    elif isinstance(value, str):
        argument.text = PyUnicode_AsUTF8AndSize(value, &argument.size)
    elif isinstance(value, int):
        argument.number = value
        argument.size = digits(magnitude(argument.number)) + (argument.number < 0)
    else:
        raise TypeError(f"an argument is bytes, str or int, not {type(value).__name__}")
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
