"""Growable blocks of memory. Only inline functions: nothing is imported at run time."""

from cpython.mem cimport PyMem_Realloc
from libc.stdint cimport uint32_t


cdef inline void *grow(void *block, uint32_t *capacity, uint32_t needed, size_t size) except NULL:
    """Grow a block so that it has space for `needed` items of `size` bytes."""
    cdef uint32_t wanted = capacity[0] if capacity[0] else 32
    cdef void *moved = block
    while wanted < needed:
        wanted *= 2
    if wanted != capacity[0]:
        moved = PyMem_Realloc(block, wanted * size)
        if moved is NULL:
            raise MemoryError
        capacity[0] = wanted
    return moved
