"""The resumable search of one layer: the campaigns that may bid, by falling price.

It resolves terms to the layer's values, arranges the filters of its blocks, and walks the campaigns
in rank order, in blocks of 512: the rows of a block are combined into its candidates, which are
verified one by one. The walk stops at the first price with a match, and resumes from there.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from allowance cimport sb_allowance
from layout cimport SB_WORDS
from search cimport sb_cursor
from snapbid.catalog._arrangement cimport Arrangement
from snapbid.catalog._impression cimport ImpressionReading
from snapbid.catalog._layer cimport Layer
from snapbid.catalog._request cimport RequestReading
from snapbid.catalog._rules cimport Rules
from snapbid.catalog._terms cimport Terms

cdef struct Match:
    uint64_t score
    uint32_t rank
    uint32_t creative
    int deal


cdef class LayerSearch:
    cdef Layer layer
    cdef Arrangement arrangement
    cdef Rules rules
    cdef sb_allowance *allowance  # the time that it may take
    cdef uint32_t n_matches  # found but not taken yet, all of one price
    cdef bint halted  # the time was up before there was a match
    cdef uint64_t bits[SB_WORDS]  # candidates of the block before `block`
    cdef uint32_t block, word, block_steps
    cdef bint finished
    cdef bint first_look  # the walk looks for guaranteed deals
    cdef uint32_t n_candidates, n_verified  # so far
    cdef int64_t match_price
    cdef Match *matches
    cdef uint32_t *values  # of the terms
    cdef sb_cursor *cursors
    cdef uint32_t matches_capacity, values_capacity, cursors_capacity

    cdef int take_request(self, RequestReading request, sb_allowance *allowance) except -1
    cdef int take_impression(self, ImpressionReading impression) except -1
    cdef void stop(self) noexcept
    cdef int find(self) except -1
    cdef bint is_better_than(self, LayerSearch other) noexcept
    cdef Match take(self) noexcept
    cdef tuple explain(self, uint32_t rank)
    cdef int forget(self) except -1
    # Steps of the above.
    cdef int resolve(self, Terms terms) except -1
    cdef void rewind(self) noexcept
    cdef uint32_t best(self) noexcept
    cdef int walk(self) except -1
    cdef bint is_admitted(self, uint32_t rank) noexcept
    cdef int add(self, uint32_t rank) except -1
