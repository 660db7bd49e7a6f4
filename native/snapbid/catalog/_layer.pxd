"""One index in memory (layout.h): the base, or the overlay. Ranks are its own."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from layout cimport *

cdef class Layer:
    cdef Py_buffer buffer
    cdef const sb_header *head
    cdef const char *base
    cdef const sb_value *values
    cdef const sb_dimension *dimensions
    cdef const sb_campaign *campaigns
    cdef const sb_detail *details
    cdef const sb_creative *creatives
    cdef const sb_circle *circles
    cdef const uint32_t *lists
    cdef uint64_t *active  # a row: campaigns that may bid, in this process
    cdef uint64_t *shown  # a row: campaigns that no overlay hides; NULL: all
    cdef uint64_t *suspended  # a row: campaigns with suspended creatives, in this process; NULL: none
    cdef set suspensions  # (rank, creative, canonical SSP)
    cdef uint32_t used  # bits: dimensions in which any campaign has an entry
    cdef uint8_t order[SB_DIMENSIONS]  # those dimensions, the most selective first
    cdef uint32_t n_order

    cdef int hide(self, Layer overlay) except -1
    cdef const sb_id *find(self, str id) except? NULL
    cdef void set_active(self, uint32_t rank, bint active) noexcept
    cdef str advertiser(self, uint32_t rank)
    cdef int suspend(self, uint32_t rank, str creative, str canonical) except -1

    cdef void put_in_order(self, uint32_t dimension) noexcept

    cdef inline const uint64_t *row(self, uint64_t offset) noexcept:
        return <const uint64_t *>(self.base + offset)

    cdef inline const sb_extra *extra(self, uint32_t rank) noexcept:
        """Return the extra fields of a campaign whose flags have any of SB_EXTRA."""
        return (<const sb_extra *>(self.base + self.head.extras)) + self.details[rank].extra
