"""An index of campaigns, and its answers to queries; see _index.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from allowance cimport sb_allowance
from layout cimport *
from search cimport sb_cursor, sb_group, sb_set
from snapbid.catalog._request cimport (Asked, Asker, Deal, ImpressionReading, Interest, Prices,
                                       Reader, RequestReading, Stream, Terms)

# -- one index in memory: the base, or the overlay. Ranks are its own ------------------------------

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
    cdef uint64_t *active  # a row: campaigns that are neither paused nor hidden
    cdef uint64_t *shown  # a row: campaigns that no overlay hides; NULL: all
    cdef uint64_t *suspended  # a row: campaigns with suspended creatives, in this process; NULL: none
    cdef set suspensions  # (rank, creative, canonical SSP)
    cdef uint32_t used  # bits: dimensions in which any campaign has an entry
    cdef uint8_t order[SB_DIMENSIONS]  # those dimensions, the most selective first
    cdef uint32_t n_order

    cdef int hide(self, Layer overlay) except -1
    cdef const sb_id *find(self, str id) except? NULL
    cdef uint64_t *copy_of(self, const uint64_t *given) except NULL
    cdef str advertiser(self, uint32_t rank)
    cdef int suspend(self, uint32_t rank, str creative, str canonical) except -1

    cdef void put_in_order(self, uint32_t dimension) noexcept

    cdef inline const uint64_t *row(self, uint64_t offset) noexcept:
        return <const uint64_t *>(self.base + offset)

    cdef inline const sb_extra *extra(self, uint32_t rank) noexcept:
        """Return the extra fields of a campaign whose flags have any of SB_EXTRA."""
        return (<const sb_extra *>(self.base + self.head.extras)) + self.details[rank].extra


# -- the filters that narrow the blocks of a layer -------------------------------------------------

# Rows (that of the active campaigns first), groups whose cursors are all rows, other groups; the
# request's part of each first, then the impression's.

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


# -- the rules that are neither rows nor groups, checked campaign by campaign ----------------------

# Why a campaign is refused: the first rule that does not hold.
cpdef enum Refusal:
    NOT_REFUSED = 0
    REFUSED_TIME = 1
    REFUSED_DEAL = 2
    REFUSED_PRIVATE_AUCTION = 3
    REFUSED_FLOOR = 4
    REFUSED_SEAT = 5
    REFUSED_BLOCKED_APP = 6
    REFUSED_BLOCKED_ADVERTISER = 7
    REFUSED_BLOCKED_CATEGORY = 8
    REFUSED_DISTANCE = 9
    REFUSED_CREATIVE = 10
    REFUSED_USER = 11
    REFUSED_INACTIVE = 12
    REFUSED_TARGETING = 13
    REFUSED_DSA = 14
    REFUSED_POD = 15
    REFUSED_SUSPENDED = 16


cdef struct Offer:  # a deal that some campaign targets
    uint32_t value, position


cdef class Rules:
    cdef Layer layer
    cdef RequestReading request
    cdef ImpressionReading impression
    cdef const Asker *asker
    cdef const Asked *asked
    cdef sb_allowance *allowance
    cdef bint refuses_all  # for the impression
    cdef int64_t lowest  # the lowest price that can answer
    cdef int64_t undealt  # the lowest price that can answer without a deal
    cdef bint guarantees  # a deal on offer is guaranteed: its campaigns come before any price
    cdef uint32_t creative  # chosen by the last `refusal`
    cdef int deal  # chosen, -1: none
    cdef uint32_t *values  # of the impression's terms
    cdef sb_set blocked, seats, languages, allowed, wanted, rivals
    cdef uint32_t marker
    cdef uint32_t *limits  # values of the request's sets
    cdef uint32_t limits_capacity
    cdef Offer *offers
    cdef uint32_t offers_capacity, n_offers

    cdef int take_request(self, RequestReading request, const uint32_t *values) except -1
    cdef int take_impression(self, ImpressionReading impression, uint32_t *values) except -1
    cdef int refusal(self, uint32_t rank) except -1


    cdef inline bint has_guarantee(self) noexcept:
        """Return whether the chosen deal is guaranteed."""
        return self.deal >= 0 and self.asked.deals[self.deal].guaranteed

    # Steps of `take_impression` and `refusal`.
    cdef int take_offers(self) except -1
    cdef bint admits_categories(self, const sb_campaign *campaign, const uint32_t *own,
                                uint32_t deals) noexcept
    cdef bint admits_category(self, uint32_t category) noexcept
    cdef bint admits_groups(self, const uint32_t *one) noexcept
    cdef int best_deal(self, const sb_campaign *campaign, const uint32_t *own, uint32_t count,
                       const sb_creative *creative) except -2
    cdef bint comes_before(self, int deal, int other) noexcept
    cdef bint admits(self, const Deal *deal, const sb_campaign *campaign) noexcept
    cdef bint suits_dsa(self, uint32_t flags) noexcept
    cdef bint is_near(self, const sb_extra *extra) noexcept
    cdef int choose_creative(self, const sb_campaign *campaign, uint32_t rank,
                             const uint32_t *own_deals, uint32_t n_deals) except -1
    cdef bint is_suspended(self, uint32_t rank, uint32_t creative) except -1
    cdef bint is_paid(self, const sb_campaign *campaign, const sb_creative *creative,
                      const Deal *deal) except -1
    cdef bint pays(self, int64_t price, int64_t duration, const Prices *prices) except -1
    cdef bint fits(self, const sb_creative *creative) noexcept
    cdef bint fits_native(self, uint32_t rank, uint32_t creative) except -1
    cdef bint fits_banner(self, const sb_creative *creative) noexcept
    cdef bint is_blocked(self, const sb_creative *creative) noexcept
    cdef bint fits_size(self, const sb_creative *creative) noexcept
    cdef bint fits_stream(self, const sb_creative *creative, const Stream *stream) noexcept
    cdef bint fits_renditions(self, const sb_creative *creative, const Stream *stream) noexcept


# -- the resumable search of one layer -------------------------------------------------------------

cdef struct Match:
    uint64_t score
    uint32_t rank
    uint32_t creative
    int deal


cdef class LayerSearch:
    cdef Layer layer
    cdef Arrangement arrangement
    cdef Rules rules
    cdef sb_allowance *allowance  # limits the search
    cdef uint32_t n_matches  # found but not taken yet, all at one price
    cdef bint halted  # time ran out before there was a match
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


# -- the index and its queries ---------------------------------------------------------------------

cdef class Workspace:
    cdef RequestReading request
    cdef ImpressionReading impression
    cdef LayerSearch base
    cdef LayerSearch over  # or None
    cdef Workspace next  # the next spare one, or None

    cdef int forget(self) except -1


cdef class Index:
    cdef Layer base
    cdef Layer over  # or None
    cdef Interest interest
    cdef Workspace spare  # the first one, or None
    cdef int spares

    cdef Layer layer(self, uint32_t *rank)
    cdef Query start(self, object lookups, Reader reader, object request, str ssp, str canonical,
                     int64_t now_ms, double left_s, double processor_s, RefusedRanks refused)


cdef class RefusedRanks:
    cdef Index index
    cdef uint64_t *base  # rows: campaigns that may bid
    cdef uint64_t *over  # NULL without an overlay

    cdef uint64_t *row(self, Layer layer) noexcept


cdef class Query:
    cdef Index index
    cdef RefusedRanks refused  # or None; its rows narrow the search
    cdef Workspace workspace
    cdef object imp
    cdef sb_allowance allowance  # limits the search
    cdef readonly uint32_t undecided  # impressions that were not decided in time

    cdef int take_request(self) except -1
    cdef int take_impression(self) except -1
    cdef void stop(self) noexcept
    cpdef bint impression(self, object imp, list rivals=*) except -1
    cpdef int allow(self, double left_s, double processor_s) except -1
    cpdef bint has_time(self) except -1
    cdef bint take_next(self, Match *best) except -1
    cdef set noted(self)
