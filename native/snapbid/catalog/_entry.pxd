"""A campaign as the builder holds it between builds, and the growing arrays to assemble it in."""

from libc.stdint cimport uint32_t

from layout cimport *

cdef enum:
    EXCLUDE = 0x80000000  # marks a term of an exclude list

cdef void *block(size_t size) except NULL


cdef class Numbers:
    """A growing array."""

    cdef uint32_t *at
    cdef uint32_t n, room

    cdef int grow(self) except -1

    cdef inline int add(self, uint32_t number) except -1:
        if self.n == self.room:
            self.grow()
        self.at[self.n] = number
        self.n += 1
        return 0

    cdef uint32_t *copy_to(self, uint32_t *to) noexcept


cdef class Entry:
    """A campaign in flat arrays; values are the builder's, lists and creatives count from 0."""

    cdef str id
    cdef bint active
    cdef sb_campaign record
    cdef sb_detail detail
    cdef sb_extra extra
    cdef uint32_t n_creatives
    cdef uint32_t includes, excludes  # bits: dimensions with such a list
    cdef sb_creative *creatives
    cdef sb_circle *circles  # in the block of the creatives
    cdef uint32_t *terms
    cdef uint32_t n_terms
    cdef uint32_t *lists     # in the block of the terms
    cdef uint32_t n_lists
    cdef bytes payload  # None: in the file, from detail.payload on
