"""The filters that narrow a layer's blocks for a request and for each of its impressions.

Rows (that of the active campaigns first), groups whose cursors are all rows, other groups; the
request's part of each first, then the impression's.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from allowance cimport sb_allowance
from layout cimport *
from search cimport sb_cursor, sb_group
from snapbid.catalog._layer cimport Layer
from snapbid.catalog._terms cimport Terms

cdef enum:
    MAX_ROWS = 2 * SB_DIMENSIONS + 2


cdef class Arrangement:
    cdef Layer layer
    cdef sb_allowance *allowance
    cdef const uint64_t *rows[MAX_ROWS]
    cdef uint8_t row_dimensions[MAX_ROWS]
    cdef sb_group flats[SB_DIMENSIONS]
    cdef sb_group groups[SB_DIMENSIONS]
    cdef sb_group deals  # the group of SB_DEAL, if it includes any
    cdef sb_cursor *fresh  # the cursors, reset to the first block
    cdef uint32_t fresh_capacity
    cdef uint32_t n_rows, n_flats, n_groups, n_cursors
    cdef uint32_t request_rows, request_flats, request_groups, request_cursors
    cdef bint refuses_all, request_refuses_all
    cdef list made  # rows built for this arrangement
    cdef Py_ssize_t request_made

    cdef int take_request(self, Terms terms, uint32_t *values) except -1
    cdef int take_impression(self, Terms terms, uint32_t *values) except -1
    cdef int refusing_dimension(self, uint32_t rank) except -2
    # Steps of `take_request` and `take_impression`.
    cdef void row(self, uint32_t dimension, const uint64_t *row) noexcept
    cdef int arrange(self, uint32_t dimension, uint32_t *values, uint32_t count) except -1
    cdef int group(self, uint32_t dimension, const uint32_t *values, uint32_t count) except -1
    cdef bint cursor(self, const sb_posting *posting) except -1
    cdef uint32_t merge(self, uint32_t first) except 0
