# cython: auto_pickle=False, autotestdict=False
"""See _entry.pxd."""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.string cimport memcpy


cdef void *block(size_t size) except NULL:
    cdef void *block = PyMem_Malloc(size)
    if block is NULL:
        raise MemoryError
    return block


@cython.no_gc
@cython.final
cdef class Numbers:

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef int grow(self) except -1:
        cdef uint32_t room = max(2 * self.room, 64)
        cdef void *at = PyMem_Realloc(self.at, room * sizeof(uint32_t))
        if at is NULL:
            raise MemoryError
        self.at = <uint32_t *>at
        self.room = room
        return 0

    cdef uint32_t *copy_to(self, uint32_t *to) noexcept:
        """Copy the numbers; return the address after the copy."""
        if self.n:  # `at` is NULL if nothing was added
            memcpy(to, self.at, self.n * sizeof(uint32_t))
        return to + self.n


@cython.final
cdef class Entry:

    def __dealloc__(self):
        PyMem_Free(self.creatives)
        PyMem_Free(self.terms)
