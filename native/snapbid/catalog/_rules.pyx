# cython: auto_pickle=False, autotestdict=False
"""See _rules.pxd."""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.math cimport M_PI, cos, sin
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from allowance cimport sb_spend
from memory cimport grow
from search cimport *
from snapbid.catalog._impression cimport CALL_STEPS, NO_TERM, Span, fits_media
from snapbid.catalog._terms cimport *

cdef enum:
    SUSPENSION_STEPS = 4  # the cost of checking whether a creative is suspended

cdef int64_t UNREACHABLE = 1LL << 62  # micro-USD, beyond any price


cdef int by_value(const void *a, const void *b) noexcept nogil:
    cdef uint32_t x = (<const Offer *>a).value, y = (<const Offer *>b).value
    return <int>(x > y) - <int>(x < y)


cdef uint32_t *take_set(sb_set *set, uint32_t *at, Terms terms, uint32_t part,
                        const uint32_t *values) noexcept:
    """Make a set of a copy of a part's values; return where the next copy goes."""
    cdef uint32_t size = terms.size(part)
    if size:
        memcpy(at, values + terms.begins[part], size * sizeof(uint32_t))
    sb_make_set(set, at, size)
    return at + size


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Rules:

    def __cinit__(self, Layer layer):
        self.layer = layer

    def __dealloc__(self):
        PyMem_Free(self.limits)
        PyMem_Free(self.offers)

    cdef int take_request(self, RequestReading request, const uint32_t *values) except -1:
        """Start over with a request; `values` are those of its terms in the layer."""
        cdef Terms terms = request.terms
        cdef uint32_t *at
        self.request = request
        self.asker = &request.asker
        self.limits = at = <uint32_t *>grow(
            self.limits, &self.limits_capacity, terms.size(BLOCKED) + terms.size(SEATS)
            + terms.size(LANGUAGES) + terms.size(CATEGORIES), sizeof(uint32_t))
        at = take_set(&self.blocked, at, terms, BLOCKED, values)
        at = take_set(&self.seats, at, terms, SEATS, values)
        at = take_set(&self.languages, at, terms, LANGUAGES, values)
        take_set(&self.allowed, at, terms, CATEGORIES, values)
        self.marker = values[terms.begins[MARKER]] if terms.size(MARKER) else SB_NONE
        return 0

    cdef int take_impression(self, ImpressionReading impression, uint32_t *values) except -1:
        """Start on an impression; `values` are those of its terms in the layer, and stay in use
        until the next one. Some of them get sorted, but not those of a dimension.
        """
        cdef Terms terms = impression.terms
        self.impression = impression
        self.asked = &impression.asked
        self.values = values
        self.take_offers()
        sb_make_set(&self.wanted, values + terms.begins[ASKED], terms.size(ASKED))
        sb_make_set(&self.rivals, values + terms.begins[RIVALS], terms.size(RIVALS))
        return 0

    cdef object named(self, int refusal):
        """Return the Refusal with this number."""
        return Refusal(refusal)

    cdef int take_offers(self) except -1:
        """Collect the deals that some campaign targets, by value, and the lowest price that can
        answer.
        """
        cdef const Asked *asked = self.asked
        cdef const Deal *deal
        cdef uint32_t i, value
        self.n_offers = 0
        self.guarantees = False
        self.lowest = self.undealt = UNREACHABLE if asked.private else asked.floor
        for i in range(asked.n_deals):
            if asked.deals[i].id == NO_TERM or asked.deals[i].floor < 0:
                continue
            value = self.values[asked.deals[i].id]
            if value != SB_NONE:
                if self.n_offers == self.offers_capacity:
                    self.offers = <Offer *>grow(
                        self.offers, &self.offers_capacity, self.n_offers + 1, sizeof(Offer))
                deal = &asked.deals[i]
                sb_rise(self.values + deal.seats, deal.n_seats)
                sb_rise(self.values + deal.advertisers, deal.n_advertisers)
                self.offers[self.n_offers].value = value
                self.offers[self.n_offers].position = i
                self.n_offers += 1
                self.lowest = min(self.lowest, deal.floor)
                self.guarantees |= deal.guaranteed
        self.refuses_all = (asked.private and self.n_offers == 0
                            or self.asker.has_wseat and self.seats.count == 0)
        if self.n_offers > 1:
            qsort(self.offers, self.n_offers, sizeof(Offer), by_value)
        return 0

    cdef int refusal(self, uint32_t rank) except -1:
        """Check every rule that is not a row or a group; set the chosen creative and deal."""
        cdef const sb_campaign *campaign = self.layer.campaigns + rank
        cdef const uint32_t *lists = self.layer.lists + campaign.lists
        cdef const sb_value *values = self.layer.values
        cdef const sb_extra *extra = NULL
        cdef uint32_t i
        sb_prefetch(lists)
        sb_prefetch(self.layer.creatives + campaign.creatives)
        sb_prefetch(values + campaign.advertiser)
        if campaign.flags & SB_EXTRA:
            extra = self.layer.extra(rank)
            if campaign.flags & SB_TIMED and not (
                    extra.starts_ms <= self.asker.now_ms < extra.ends_ms):
                return REFUSED_TIME
        if campaign.flags & SB_CAPPED and not self.asker.recognised:
            return REFUSED_USER
        self.deal = -1
        if campaign.flags & SB_DEALS:
            self.deal = self.best_deal(
                campaign, lists + campaign.categories, extra.deals, NULL)
            if self.deal < 0:
                return REFUSED_DEAL
        elif self.asked.private:
            return REFUSED_PRIVATE_AUCTION
        elif campaign.price < self.asked.floor:
            return REFUSED_FLOOR
        if self.asker.has_wseat and not sb_in(&self.seats, campaign.seat):
            return REFUSED_SEAT
        if self.blocked.count:
            if sb_in(&self.blocked, campaign.seat):
                return REFUSED_SEAT
            if sb_in(&self.blocked, campaign.bundle):
                return REFUSED_BLOCKED_APP
            if sb_line_in(&self.blocked, values, campaign.advertiser):
                return REFUSED_BLOCKED_ADVERTISER
        if sb_in(&self.rivals, campaign.advertiser):
            return REFUSED_POD
        if (self.asker.has_bcat or self.asker.has_acat) and not self.admits_categories(
                campaign, lists, extra.deals if campaign.flags & SB_DEALS else 0):
            return REFUSED_BLOCKED_CATEGORY
        if self.asker.asks_dsa and not self.suits_dsa(campaign.flags):
            return REFUSED_DSA
        if campaign.flags & SB_CIRCLES and not self.is_near(extra):
            return REFUSED_DISTANCE
        return self.choose_creative(campaign, rank, lists + campaign.categories,
                                    extra.deals if campaign.flags & SB_DEALS else 0)

    cdef bint admits_categories(self, const sb_campaign *campaign, const uint32_t *own,
                                uint32_t deals) noexcept:
        """Return whether the request admits the categories, as they are or as they are mapped."""
        cdef const uint32_t *end = own + campaign.categories
        cdef uint32_t family = campaign.flags >> SB_FAMILY
        if campaign.categories == 0:
            return not self.asker.has_acat
        if self.asker.blocks_unknown:
            return False
        if family != self.asker.family:
            own = end + deals
            end = self.layer.lists + self.layer.creatives[campaign.creatives].lists
            if self.marker == SB_NONE:
                return False
            while own < end and own[0] != self.marker:
                own += 1
            own += 1
            if own >= end:  # it has no mapping
                return False
            if own[0] == SB_NONE:
                return not self.asker.unmapped >> family & 1 and self.admits_groups(own + 1)
        while own < end and own[0] != self.marker:
            if not self.admits_category(own[0]):
                return False
            own += 1
        return True

    cdef inline bint admits_category(self, uint32_t category) noexcept:
        cdef const sb_value *values = self.layer.values
        if sb_line_in(&self.blocked, values, category):
            return False
        return not self.asker.has_acat or sb_line_in(&self.allowed, values, category)

    cdef bint admits_groups(self, const uint32_t *one) noexcept:
        """Return whether no category is blocked, and each is allowed by one that means it."""
        cdef const sb_value *values = self.layer.values
        cdef bint allowed
        while one[0] != self.marker:
            allowed = not self.asker.has_acat
            while one[0] != SB_NONE:
                if sb_line_in(&self.blocked, values, one[0]):
                    return False
                allowed = allowed or sb_line_in(&self.allowed, values, one[0])
                one += 1
            if not allowed:
                return False
            one += 1
        return True

    cdef int best_deal(self, const sb_campaign *campaign, const uint32_t *own, uint32_t count,
                       const sb_creative *creative) except -2:
        """Return the best deal that admits the campaign, with this creative if any; -1 if none does."""
        cdef const Offer *offers = self.offers
        cdef const Deal *deal
        cdef int best = -1
        cdef uint32_t i, low, high, middle
        self.allowance.steps -= count
        for i in range(count):
            low = 0
            high = self.n_offers
            while low < high:
                middle = (low + high) // 2
                if offers[middle].value < own[i]:
                    low = middle + 1
                else:
                    high = middle
            while low < self.n_offers and offers[low].value == own[i]:
                deal = &self.asked.deals[offers[low].position]
                if (deal.floor <= campaign.price and self.comes_before(offers[low].position, best)
                        and self.admits(deal, campaign)
                        and (creative is NULL or self.is_paid(campaign, creative, deal))):
                    best = offers[low].position
                low += 1
        return best

    cdef inline bint comes_before(self, int deal, int other) noexcept:
        """Return whether one of the impression's deals is better than another, or than none (-1): it
        is guaranteed, has the higher floor, or stands first.
        """
        cdef const Deal *deals = self.asked.deals
        if other < 0 or deals[deal].guaranteed != deals[other].guaranteed:
            return other < 0 or deals[deal].guaranteed
        if deals[deal].floor != deals[other].floor:
            return deals[deal].floor > deals[other].floor
        return deal < other

    cdef bint admits(self, const Deal *deal, const sb_campaign *campaign) noexcept:
        """Return whether the deal admits the campaign's seat and advertiser."""
        cdef const uint32_t *values = self.values
        cdef uint32_t line = campaign.advertiser
        if deal.has_seats and (campaign.seat == SB_NONE or not sb_among(
                values + deal.seats, deal.n_seats, campaign.seat)):
            return False
        if not deal.has_advertisers:
            return True
        while line != SB_NONE:
            if sb_among(values + deal.advertisers, deal.n_advertisers, line):
                return True
            line = self.layer.values[line].parent
        return False

    cdef inline bint suits_dsa(self, uint32_t flags) noexcept:
        """Return whether the campaign declares what it must, and the right side renders it."""
        if not flags & SB_DSA:
            return not self.asker.needs_dsa
        return flags & self.asker.renders == self.asker.renders

    cdef bint is_near(self, const sb_extra *extra) noexcept:
        """Return whether the request is within any circle (haversine)."""
        cdef const sb_circle *circle = self.layer.circles + extra.circles
        cdef double lat = self.asker.lat * M_PI / 180, lon = self.asker.lon * M_PI / 180
        cdef double a, b, cos_lat
        cdef uint32_t i
        if not self.asker.located:
            return False
        self.allowance.steps -= extra.n_circles
        cos_lat = cos(lat)
        for i in range(extra.n_circles):
            a = sin((circle[i].lat - lat) / 2)
            b = sin((circle[i].lon - lon) / 2)
            if a * a + circle[i].cos_lat * cos_lat * b * b <= circle[i].limit:
                return True
        return False

    cdef int choose_creative(self, const sb_campaign *campaign, uint32_t rank,
                             const uint32_t *own_deals, uint32_t n_deals) except -1:
        """Choose, of the creatives that fit, the one with the highest score; if deals have prices
        by duration, of those that the best deal admits. Return the refusal, if any, as `refusal`
        does.
        """
        cdef const sb_creative *creative = self.layer.creatives + campaign.creatives
        cdef bint timed = n_deals and self.asked.deals_are_timed
        cdef bint has_suspended = self.layer.suspended is not NULL and sb_bit(self.layer.suspended, rank)
        cdef uint64_t score, best = 0
        cdef int refusal = REFUSED_CREATIVE, deal = self.deal
        cdef uint32_t i = 0
        while True:
            if (self.fits(creative + i) and self.is_paid(campaign, creative + i, NULL)
                    and (creative[i].media != SB_NATIVE or self.fits_native(rank, i))):
                if timed:
                    deal = self.best_deal(campaign, own_deals, n_deals, creative + i)
                if has_suspended and self.is_suspended(rank, i):
                    refusal = REFUSED_SUSPENDED if refusal == REFUSED_CREATIVE else refusal
                elif timed and deal < 0:
                    refusal = NOT_REFUSED if refusal == NOT_REFUSED else REFUSED_DEAL
                else:
                    score = sb_score(self.asker.auction, creative[i].seed)
                    if refusal != NOT_REFUSED or (
                            score > best if deal == self.deal
                            else self.comes_before(deal, self.deal)):
                        refusal = NOT_REFUSED
                        best = score
                        self.creative = i
                        self.deal = deal
            if creative[i].flags & SB_LAST:
                return refusal
            i += 1

    cdef bint is_suspended(self, uint32_t rank, uint32_t creative) except -1:
        """Return whether the creative, of a campaign with suspended ones, is suspended at this SSP."""
        self.allowance.steps -= SUSPENSION_STEPS
        return (rank, creative, self.request.canonical) in self.layer.suspensions

    cdef inline bint is_paid(self, const sb_campaign *campaign, const sb_creative *creative,
                             const Deal *deal) except -1:
        """Return whether the campaign pays the floor of the impression, or of the deal if any, for
        a video or audio creative of this duration.
        """
        cdef const Prices *prices
        if creative.media == SB_VIDEO:
            prices = &self.asked.video.prices
        elif creative.media == SB_AUDIO:
            prices = &self.asked.audio.prices
        else:
            return True
        if deal is not NULL:
            prices = &deal.prices
        return not prices.limited or self.pays(campaign.price, creative.duration, prices)

    cdef bint pays(self, int64_t price, int64_t duration, const Prices *prices) except -1:
        """Return whether a price suffices for a duration in seconds; never for an unknown one (-1).
        """
        cdef const Span *span
        cdef int64_t least
        cdef uint32_t i
        if duration < 0:
            return False
        if prices.per_second > 0 and duration and prices.per_second > price // duration:
            return False
        if prices.amount > 0:
            self.allowance.steps -= CALL_STEPS
            least = (<object>self.request.reader).floor_micros(
                prices.amount, <object>prices.currency, duration)
            if least < 0 or price < least:
                return False
        self.allowance.steps -= prices.last_span - prices.first_span
        for i in range(prices.first_span, prices.last_span):
            span = &self.asked.spans[i]
            if span.shortest <= duration <= span.longest and (
                    span.floor < 0 or price < span.floor):
                return False
        return True

    cdef inline bint fits(self, const sb_creative *creative) noexcept:
        if self.asked.secure and not creative.flags & SB_SECURE:
            return False
        if creative.apis & ~self.asked.apis[creative.media]:
            return False
        if self.asker.has_languages and not sb_line_in(
                &self.languages, self.layer.values, creative.language):
            return False
        if creative.media == SB_BANNER:
            return self.fits_banner(creative)
        if creative.media == SB_VIDEO:
            return self.fits_stream(creative, &self.asked.video)
        if creative.media == SB_AUDIO:
            return self.fits_stream(creative, &self.asked.audio)
        return (self.asked.native and not self.asked.native_kinds & ~creative.protocols
                and not self.is_blocked(creative))

    cdef bint fits_native(self, uint32_t rank, uint32_t creative) except -1:
        """Return whether the creative's assets fit, as bidding.native_answer decides."""
        if sb_spend(self.allowance, CALL_STEPS):
            return False
        return (<object>self.request.reader).fits_native(self.impression.native, self.layer, rank, creative)

    cdef inline bint fits_banner(self, const sb_creative *creative) noexcept:
        if not self.fits_size(creative) or self.is_blocked(creative):
            return False
        if self.asked.types >> creative.type & 1:
            return False
        return not (self.asked.has_mimes and creative.mimes) or sb_any_in(
            &self.wanted, self.layer.lists + creative.lists, creative.mimes)

    cdef inline bint is_blocked(self, const sb_creative *creative) noexcept:
        cdef uint32_t blocked = self.asked.attributes[creative.media]
        return (creative.attributes & blocked != 0
                or blocked & 1 and creative.other_attributes != 0  # any attribute
                or sb_any_in(&self.wanted, self.layer.lists + creative.lists + creative.mimes,
                             creative.other_attributes))

    cdef inline bint fits_size(self, const sb_creative *creative) noexcept:
        cdef uint64_t size = <uint64_t>creative.w << 24 | creative.h
        cdef uint32_t i
        for i in range(self.asked.n_sizes):
            if self.asked.sizes[i] == size:
                return True
        return False

    cdef bint fits_stream(self, const sb_creative *creative, const Stream *stream) noexcept:
        cdef const uint32_t *lists = self.layer.lists + creative.lists
        if not stream.present or self.is_blocked(creative):
            return False
        if (stream.has_mimes and creative.mimes
                and not sb_any_in(&self.wanted, lists, creative.mimes)):
            return False
        lists += creative.mimes + creative.other_attributes
        if (stream.has_protocols and (creative.protocols or creative.other_protocols)
                and not creative.protocols & stream.protocols
                and not sb_any_in(&self.wanted, lists, creative.other_protocols)):
            return False
        if stream.exact and not sb_among(self.asked.durations + stream.first_duration,
                                         stream.n_durations, <uint32_t>creative.duration):
            return False
        if stream.limits_media and not fits_media(creative, stream):
            return False
        if creative.duration < 0:
            return stream.shortest == 0 and stream.longest == 0
        return (creative.duration >= stream.shortest
                and (stream.longest == 0 or creative.duration <= stream.longest))
