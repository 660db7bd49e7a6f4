"""Postings: the campaigns that name a value, as a row of bits or a list of ranks (layout.h).

They are counted, then laid out, then filled.
"""

from libc.stdint cimport uint32_t, uint64_t

from layout cimport *
from snapbid.catalog._entry cimport EXCLUDE, Entry


cdef class Postings:
    cdef uint32_t n, blocks  # campaigns
    cdef uint64_t row_size
    cdef uint32_t *inside   # value -> campaigns that include it, later: fill position
    cdef uint32_t *outside
    cdef unsigned char *singles  # value -> its dimension, if it has a row and no postings

    cdef inline void count(self, uint32_t value, uint32_t term) noexcept:
        """Count a campaign that has the value in a term."""
        if term & EXCLUDE:
            self.outside[value] += 1
        else:
            self.inside[value] += 1

    cdef uint64_t place_all(self, uint64_t at, list keys, sb_value *values) except 0
    cdef uint64_t place(self, sb_posting *posting, uint32_t count, uint64_t at, bint rows) noexcept
    cdef void post(self, char *base, Entry entry, uint32_t rank, const uint32_t *renamed,
                   sb_value *values) noexcept
    cdef int write_rows(self, char *base, const sb_dimension *dimensions, list keys,
                        const sb_value *values) except -1
    cdef void combine(self, const char *base, uint64_t *row, const sb_posting *posting,
                      bint admitted) noexcept
