"""The rules that are neither rows nor groups, checked campaign by campaign.

`refusal` returns the first that refuses one, or chooses the creative and the deal to bid with.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from allowance cimport sb_allowance
from layout cimport *
from search cimport sb_set
from snapbid.catalog._impression cimport Asked, Deal, ImpressionReading, Prices, Stream
from snapbid.catalog._layer cimport Layer
from snapbid.catalog._request cimport Asker, RequestReading

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
    cdef object named(self, int refusal)

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
