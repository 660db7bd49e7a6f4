# cython: auto_pickle=False, autotestdict=False
"""The search of an index (layout.h) for an impression's best campaign; see `_index.pyi`.

A query *reads* the decoded structs of the request into terms, the keys that a campaign may target
(_request). Each layer of the index, the base and the overlay, has its own search, which resolves
the terms to the layer's values, *arranges* the filters of its blocks, and walks the campaigns in
rank order, in blocks of 512: the rows of a block are combined into its candidates, and each of these
is checked against the *rules*. The walk stops at the first price with a match, and resumes from
there.

The cost of a request is bounded (contract 3): snapbid/campaigns/README.md lists every loop over a
request's content. Reading is linear in the request; the walk ends when its allowance is used up.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.math cimport INFINITY, M_PI, cos, sin
from libc.stdlib cimport qsort
from libc.string cimport memcpy, memset

from allowance cimport *
from memory cimport grow
from search cimport *
from snapbid.catalog._request cimport *

# -- one index in memory: the base, or the overlay -------------------------------------------------

cdef void hide(const sb_header *base, const sb_header *over, uint64_t *shown,
               uint64_t *active) noexcept nogil:
    """In two rows of the base, clear the bits of the campaigns whose ids are in the overlay."""
    cdef const sb_id *ids = <const sb_id *>(<const char *>over + over.ids)
    cdef const sb_id *entry
    cdef const char *key
    cdef uint64_t others
    cdef uint32_t i, size
    for i in range(over.n_ids):
        if ids[i].key != SB_FREE:
            key = <const char *>over + over.keys + ids[i].key
            memcpy(&size, key, sizeof(size))
            entry = sb_find_id(base, key + sizeof(size), size & 0xffffff)
            if entry is not NULL and entry.rank != SB_GONE:
                others = ~(<uint64_t>1 << (entry.rank & 63))
                shown[entry.rank >> 6] &= others
                active[entry.rank >> 6] &= others


@cython.no_gc  # it is part of no cycle; a collector would clear its memoryview under it
@cython.final
cdef class Layer:
    """An index in a read-only buffer. Raises ValueError if it is not an index of this version."""

    def __cinit__(self, object source):
        cdef uint32_t i
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.base = <const char *>self.buffer.buf
        self.head = <const sb_header *>self.base
        if (<size_t>self.buffer.len < sizeof(sb_header) or self.head.magic != SB_MAGIC
                or self.head.version != SB_VERSION
                or self.head.size != <uint64_t>self.buffer.len):
            raise ValueError("not a campaign index of this version")
        self.values = <const sb_value *>(self.base + self.head.values_at)
        self.dimensions = <const sb_dimension *>(self.base + self.head.dimensions)
        self.campaigns = <const sb_campaign *>(self.base + self.head.campaigns_at)
        self.details = <const sb_detail *>(self.base + self.head.details)
        self.creatives = <const sb_creative *>(self.base + self.head.creatives)
        self.lists = <const uint32_t *>(self.base + self.head.lists)
        self.circles = <const sb_circle *>(self.base + self.head.circles)
        cdef size_t row = self.head.blocks * SB_WORDS * sizeof(uint64_t)
        self.active = <uint64_t *>PyMem_Malloc(max(row, 1))
        if self.active is NULL:
            raise MemoryError
        memcpy(self.active, self.base + self.head.active, row)
        for i in range(SB_DIMENSIONS):
            if self.dimensions[i].includes or self.dimensions[i].excludes:
                self.used |= 1u << i
                self.put_in_order(i)

    def __dealloc__(self):
        PyMem_Free(self.suspended)
        PyMem_Free(self.shown)
        PyMem_Free(self.active)
        PyBuffer_Release(&self.buffer)

    cdef void put_in_order(self, uint32_t dimension) noexcept:
        cdef uint32_t position = self.n_order
        cdef uint32_t includes = self.dimensions[dimension].includes
        while position and self.dimensions[self.order[position - 1]].includes < includes:
            self.order[position] = self.order[position - 1]
            position -= 1
        self.order[position] = dimension
        self.n_order += 1

    cdef int hide(self, Layer overlay) except -1:
        """Hide the campaigns whose ids are in the overlay."""
        cdef const sb_header *hidden = overlay.head
        cdef size_t row = self.head.blocks * SB_WORDS * sizeof(uint64_t)
        self.shown = <uint64_t *>PyMem_Malloc(max(row, 1))
        if self.shown is NULL:
            raise MemoryError
        memset(self.shown, 0xff, row)
        with nogil:  # for an overlay of many campaigns it takes milliseconds
            hide(self.head, hidden, self.shown, self.active)
        return 0

    cdef const sb_id *find(self, str id) except? NULL:
        """Return the entry of an id, or NULL."""
        encoded = id.encode()
        return sb_find_id(self.head, <const char *>encoded, len(encoded))

    def payload(self, uint32_t rank):
        """Return the payload stored with the campaign."""
        return PyBytes_FromStringAndSize(
            self.base + self.details[rank].payload, self.details[rank].payload_size)

    cdef str advertiser(self, uint32_t rank):
        """Return the campaign's advertiser domain, in lower case."""
        cdef const char *key = sb_key(self.head, self.campaigns[rank].advertiser)
        cdef uint32_t size
        memcpy(&size, key, sizeof(size))
        return PyUnicode_DecodeUTF8(key + sizeof(size), size & 0xffffff, NULL)

    cdef uint64_t *copy_of(self, const uint64_t *given) except NULL:
        """Return a copy of a row of campaigns, which the caller frees."""
        cdef size_t row = self.head.blocks * SB_WORDS * sizeof(uint64_t)
        cdef uint64_t *copy = <uint64_t *>PyMem_Malloc(max(row, 1))
        if copy is NULL:
            raise MemoryError
        memcpy(copy, given, row)
        return copy

    cdef int suspend(self, uint32_t rank, str creative, str canonical) except -1:
        """Suspend a creative at an SSP, in this process; unknown creatives are ignored."""
        cdef const sb_creative *one = self.creatives + self.campaigns[rank].creatives
        cdef size_t row = self.head.blocks * SB_WORDS * sizeof(uint64_t)
        cdef uint32_t i = 0
        encoded = creative.encode()
        if self.suspended is NULL:
            self.suspended = <uint64_t *>PyMem_Malloc(max(row, 1))
            if self.suspended is NULL:
                raise MemoryError
            memset(self.suspended, 0, row)
            self.suspensions = set()
        while True:
            if one.seed == sb_hash(one.media, <const char *>encoded, len(encoded)):
                self.suspended[rank >> 6] |= <uint64_t>1 << (rank & 63)
                self.suspensions.add((rank, i, canonical))
            if one.flags & SB_LAST:
                return 0
            one = sb_next_creative(one)
            i += 1


# -- the filters that narrow its blocks ------------------------------------------------------------

cdef enum:
    MAX_CURSORS = 64  # of a group; beyond, its postings are merged into a row


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Arrangement:

    def __cinit__(self, Layer layer):
        self.layer = layer

    def __dealloc__(self):
        PyMem_Free(self.fresh)

    cdef int take_request(self, Terms terms, uint32_t *values) except -1:
        """Start over with a request's dimensions.

        `values`: the numbers of its terms in the layer; those of each dimension get sorted.
        """
        cdef uint32_t i, dimension
        self.rows[0] = self.layer.active
        self.n_rows = 1
        self.n_flats = self.n_groups = self.n_cursors = 0
        self.refuses_all = False
        self.made = None
        for i in range(self.layer.n_order):
            dimension = self.layer.order[i]
            if dimension < SB_OF_IMPRESSION:
                self.arrange(dimension, values + terms.begins[dimension], terms.size(dimension))
        self.request_made = 0 if self.made is None else len(self.made)
        self.request_rows = self.n_rows
        self.request_flats = self.n_flats
        self.request_groups = self.n_groups
        self.request_cursors = self.n_cursors
        self.request_refuses_all = self.refuses_all
        return 0

    cdef int take_impression(self, Terms terms, uint32_t *values) except -1:
        """Replace the last impression's dimensions; `values`: as in `take_request`."""
        cdef uint32_t i, dimension
        if self.made is not None:
            del self.made[self.request_made:]
        self.n_rows = self.request_rows
        self.n_flats = self.request_flats
        self.n_groups = self.request_groups
        self.n_cursors = self.request_cursors
        self.refuses_all = self.request_refuses_all
        self.deals.includes = 0
        for i in range(self.layer.n_order):
            dimension = self.layer.order[i]
            if dimension >= SB_OF_IMPRESSION:
                self.arrange(dimension, values + terms.begins[dimension], terms.size(dimension))
        return 0

    cdef inline void row(self, uint32_t dimension, const uint64_t *row) noexcept:
        self.rows[self.n_rows] = row
        self.row_dimensions[self.n_rows] = dimension
        self.n_rows += 1
        sb_prefetch(row)

    cdef inline int arrange(self, uint32_t dimension, uint32_t *values, uint32_t count) except -1:
        """Narrow down the campaigns by the values of a dimension."""
        cdef const sb_dimension *open = self.layer.dimensions + dimension
        if count > 1:
            count = sb_sort(values, count)
        elif count and values[0] == SB_NONE:
            count = 0
        if count == 1 and self.layer.values[values[0]].row:
            self.row(dimension, self.layer.row(<uint64_t>self.layer.values[values[0]].row * 64))
        elif count:
            self.group(dimension, values, count)
        elif open.includes:
            self.row(dimension, self.layer.row(open.open))
            if open.includes == self.layer.head.campaigns:
                self.refuses_all = True
        return 0

    cdef int group(self, uint32_t dimension, const uint32_t *values, uint32_t count) except -1:
        cdef const sb_dimension *open = self.layer.dimensions + dimension
        cdef const sb_value *known = self.layer.values
        cdef sb_group *group = &self.groups[self.n_groups]
        cdef bint flat = True
        cdef uint32_t i
        group.dimension = dimension
        group.first = self.n_cursors
        group.open = self.layer.row(open.open) if open.includes else NULL
        if open.includes:
            for i in range(count):
                if known[values[i]].included.count:
                    flat &= self.cursor(&known[values[i]].included)
        group.includes = self.n_cursors - group.first
        if open.includes and group.includes == 0:  # no campaign includes any of the values
            self.row(dimension, group.open)
            if open.includes == self.layer.head.campaigns:
                self.refuses_all = True
            group.open = NULL
        elif group.includes > MAX_CURSORS:
            group.includes = self.merge(group.first)
        for i in range(count):
            if known[values[i]].excluded.count:
                flat &= self.cursor(&known[values[i]].excluded)
        group.excludes = self.n_cursors - group.first - group.includes
        if group.excludes > MAX_CURSORS:
            group.excludes = self.merge(group.first + group.includes)
        if dimension == SB_DEAL:
            self.deals = group[0]
        if group.includes + group.excludes == 0:
            return 0
        if flat:
            self.flats[self.n_flats] = group[0]
            self.n_flats += 1
        else:
            self.n_groups += 1
        if group.open is not NULL:
            sb_prefetch(group.open)
        return 0

    cdef bint cursor(self, const sb_posting *posting) except -1:
        """Add a posting; return whether it is a row."""
        cdef sb_cursor *cursor
        if self.n_cursors == self.fresh_capacity:
            self.fresh = <sb_cursor *>grow(
                self.fresh, &self.fresh_capacity, self.n_cursors + 1, sizeof(sb_cursor))
        cursor = self.fresh + self.n_cursors
        self.n_cursors += 1
        if sb_is_row(posting.count, self.layer.head.campaigns):
            cursor.row = self.layer.row(<uint64_t>posting.at * 4)
            cursor.rank = cursor.end = NULL
            sb_prefetch(cursor.row)
            return True
        cursor.row = NULL
        cursor.rank = <const uint32_t *>(self.layer.base + <uint64_t>posting.at * 4)
        cursor.end = cursor.rank + posting.count
        sb_prefetch(cursor.rank)
        sb_prefetch(cursor.rank + 16)
        return False

    cdef uint32_t merge(self, uint32_t first) except 0:
        """Merge the cursors from `first` on into a single row, which replaces them.

        A request that names thousands of values then costs one pass over their postings instead of
        thousands of checks per campaign.
        """
        cdef size_t words = <size_t>self.layer.head.blocks * SB_WORDS
        cdef uint64_t *row
        cdef sb_cursor *cursor
        cdef uint32_t i
        cdef size_t word
        made = bytearray(words * sizeof(uint64_t))
        row = <uint64_t *>PyByteArray_AS_STRING(made)
        for i in range(first, self.n_cursors):
            cursor = self.fresh + i
            if sb_spend(self.allowance, (words if cursor.row is not NULL
                                         else cursor.end - cursor.rank) // 16):
                break  # the row is incomplete, but no impression will be decided
            if cursor.row is not NULL:
                for word in range(words):
                    row[word] |= cursor.row[word]
            while cursor.rank < cursor.end:
                row[cursor.rank[0] >> 6] |= <uint64_t>1 << (cursor.rank[0] & 63)
                cursor.rank += 1
        if self.made is None:
            self.made = []
        self.made.append(made)
        cursor = self.fresh + first
        cursor.row = row
        cursor.rank = cursor.end = NULL
        self.n_cursors = first + 1
        return 1

    cdef int refusing_dimension(self, uint32_t rank) except -2:
        """Return the lowest dimension whose row or group refuses the campaign, or -1."""
        cdef uint32_t i, lowest = SB_DIMENSIONS
        cdef sb_cursor *cursors = <sb_cursor *>PyMem_Malloc(
            max(self.n_cursors, 1) * sizeof(sb_cursor))
        if cursors is NULL:
            raise MemoryError
        if self.n_cursors:
            memcpy(cursors, self.fresh, self.n_cursors * sizeof(sb_cursor))
        for i in range(1, self.n_rows):
            if not sb_bit(self.rows[i], rank):
                lowest = min(lowest, self.row_dimensions[i])
        for i in range(self.n_flats):
            if not sb_admits(&self.flats[i], cursors, rank):
                lowest = min(lowest, self.flats[i].dimension)
        for i in range(self.n_groups):
            if not sb_admits(&self.groups[i], cursors, rank):
                lowest = min(lowest, self.groups[i].dimension)
        PyMem_Free(cursors)
        return -1 if lowest == SB_DIMENSIONS else <int>lowest


# -- the rules that refuse a campaign --------------------------------------------------------------

cdef enum:
    SUSPENSION_STEPS = 4  # the cost of checking whether a creative is suspended

cdef int64_t UNREACHABLE = 1LL << 62  # micro-USD, beyond any price


cdef int by_value(const void *a, const void *b) noexcept nogil:
    cdef uint32_t x = (<const Offer *>a).value, y = (<const Offer *>b).value
    return <int>(x > y) - <int>(x < y)


cdef uint32_t *take_set(sb_set *set, uint32_t *at, Terms terms, uint32_t part,
                        const uint32_t *values) noexcept:
    """Make a set from a copy of a part's values; return where the next copy goes."""
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
        """Start over with a request. `values`: the numbers of its terms in the layer."""
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
        """Start on an impression. `values`: the numbers of its terms in the layer.

        They stay in use until the next impression. Some get sorted, but not those of dimensions.
        """
        cdef Terms terms = impression.terms
        self.impression = impression
        self.asked = &impression.asked
        self.values = values
        self.take_offers()
        sb_make_set(&self.wanted, values + terms.begins[ASKED], terms.size(ASKED))
        sb_make_set(&self.rivals, values + terms.begins[RIVALS], terms.size(RIVALS))
        return 0


    cdef int take_offers(self) except -1:
        """Collect the impression's deals that any campaign targets, sorted by value, and the
        lowest floor to be met."""
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
        """Return the first rule that refuses a campaign, rows and groups aside; if there is none,
        set the chosen creative and deal."""
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
        if self.asker.blocks_seats and campaign.seat != SB_NONE:
            return REFUSED_SEAT
        if self.blocked.count and sb_in(&self.blocked, campaign.seat):
            return REFUSED_SEAT
        if self.asker.blocks_bundles and campaign.bundle != SB_NONE:
            return REFUSED_BLOCKED_APP
        if self.blocked.count:
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
        """Return whether the request admits the categories, directly or through a mapping."""
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
        """Return whether no category is blocked, and each is allowed under one of its names."""
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
        """Return the best deal that admits the campaign, with this creative if given; -1 if none
        does."""
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
        """Return whether a deal of the impression is better than another, or than none (-1).

        A guaranteed deal is better; between equals, the one with the higher floor, then the first.
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
        """Return whether the campaign's DSA declaration, or the lack of one, suits the request."""
        if not flags & SB_DSA:
            return not self.asker.needs_dsa
        return flags & self.asker.renders == self.asker.renders

    cdef bint is_near(self, const sb_extra *extra) noexcept:
        """Return whether the request is within any of the campaign's circles (haversine)."""
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
        """Choose the fitting creative with the highest score; return the refusal, if any.

        If deals have prices by duration, only creatives admitted by the best deal are considered.
        """
        cdef const sb_creative *creative = self.layer.creatives + campaign.creatives
        cdef bint timed = n_deals and self.asked.deals_are_timed
        cdef bint has_suspended = self.layer.suspended is not NULL and sb_bit(self.layer.suspended, rank)
        cdef uint64_t score, best = 0
        cdef int refusal = REFUSED_CREATIVE, deal = self.deal
        cdef uint32_t i = 0
        while True:
            if (self.fits(creative) and self.is_paid(campaign, creative, NULL)
                    and (creative.media != SB_NATIVE or self.fits_native(rank, i))):
                if timed:
                    deal = self.best_deal(campaign, own_deals, n_deals, creative)
                if has_suspended and self.is_suspended(rank, i):
                    refusal = REFUSED_SUSPENDED if refusal == REFUSED_CREATIVE else refusal
                elif timed and deal < 0:
                    refusal = NOT_REFUSED if refusal == NOT_REFUSED else REFUSED_DEAL
                else:
                    score = sb_score(self.asker.auction, creative.seed)
                    if refusal != NOT_REFUSED or (
                            score > best if deal == self.deal
                            else self.comes_before(deal, self.deal)):
                        refusal = NOT_REFUSED
                        best = score
                        self.creative = i
                        self.deal = deal
            if creative.flags & SB_LAST:
                return refusal
            creative = sb_next_creative(creative)
            i += 1

    cdef bint is_suspended(self, uint32_t rank, uint32_t creative) except -1:
        """Return whether a creative is suspended at this SSP; the layer must have `suspensions`."""
        self.allowance.steps -= SUSPENSION_STEPS
        return (rank, creative, self.request.canonical) in self.layer.suspensions

    cdef inline bint is_paid(self, const sb_campaign *campaign, const sb_creative *creative,
                             const Deal *deal) except -1:
        """Return whether the campaign pays the floor of the impression, or of the deal if given,
        for a video or audio creative of this duration."""
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
        """Return whether a price suffices for a duration in seconds; False for -1 (unknown)."""
        cdef const Span *span
        cdef int64_t least
        cdef uint32_t i
        if duration < 0:
            return False
        if prices.per_second > 0 and duration and prices.per_second > price // duration:
            return False
        if prices.amount != 0:  # NaN, too
            self.allowance.steps -= CALL_STEPS
            least = self.request.lookups.floor_micros(
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
        return self.request.lookups.fits_native(self.impression.native, self.layer, rank, creative)

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
        if creative.flags & SB_VARIED and stream.has_mimes:
            if not self.fits_renditions(creative, stream):
                return False
        elif stream.limits_media and not fits_media(creative, stream):
            return False
        if creative.duration < 0:
            return stream.shortest == 0 and stream.longest == 0
        return (creative.duration >= stream.shortest
                and (stream.longest == 0 or creative.duration <= stream.longest))

    cdef bint fits_renditions(self, const sb_creative *creative, const Stream *stream) noexcept:
        """Return whether the renditions of the wanted types fit the impression, taken together.

        The creative's own size must fit, too, since the bid states it. If no rendition has a wanted
        type, the creative's own fields are compared instead.
        """
        cdef const sb_creative *one = creative
        cdef sb_creative played = creative[0]
        cdef uint64_t area, largest
        cdef bint found = False
        while one is creative or not one.flags & SB_LAST:
            one += 1
            if not sb_in(&self.wanted, self.layer.lists[one.lists]):
                continue
            if not found:
                found = True
                played = one[0]
                continue
            played.bitrate = max(played.bitrate, one.bitrate)
            played.delivery |= one.delivery
            # A player takes a file that needs no framework.
            played.apis = played.apis | one.apis if played.apis and one.apis else 0
            area, largest = <uint64_t>one.w * one.h, <uint64_t>played.w * played.h
            if area > largest or area == largest and one.w > played.w:
                played.w, played.h = one.w, one.h
        return (not played.apis & ~self.asked.apis[creative.media]
                and fits_player(creative.w, creative.h, stream) and fits_media(&played, stream))


# -- the search of one layer -----------------------------------------------------------------------

@cython.no_gc  # it is part of no cycle
@cython.final
cdef class LayerSearch:

    def __cinit__(self, Layer layer):
        self.layer = layer
        self.arrangement = Arrangement(layer)
        self.rules = Rules(layer)
        self.finished = True

    def __dealloc__(self):
        PyMem_Free(self.matches)
        PyMem_Free(self.values)
        PyMem_Free(self.cursors)

    cdef int take_request(self, RequestReading request, sb_allowance *allowance) except -1:
        """Start over with a request; `allowance` limits the search."""
        self.allowance = self.arrangement.allowance = self.rules.allowance = allowance
        self.stop()
        self.resolve(request.terms)
        self.arrangement.take_request(request.terms, self.values)
        self.rules.take_request(request, self.values)
        return 0

    cdef int take_impression(self, ImpressionReading impression) except -1:
        """Start on an impression of the request."""
        cdef Arrangement arranged = self.arrangement
        self.resolve(impression.terms)
        self.rules.take_impression(impression, self.values)  # before its deals are sorted
        arranged.take_impression(impression.terms, self.values)
        if arranged.n_cursors > self.cursors_capacity:
            self.cursors = <sb_cursor *>grow(
                self.cursors, &self.cursors_capacity, arranged.n_cursors, sizeof(sb_cursor))
        self.block_steps = 1 + (arranged.n_rows + arranged.n_cursors) // 8
        self.n_candidates = self.n_verified = self.n_matches = 0
        self.halted = False
        self.first_look = self.rules.guarantees
        self.rewind()
        return 0

    cdef void stop(self) noexcept:
        """End the search for the impression."""
        self.n_matches = 0
        self.finished = True
        self.halted = False

    cdef int forget(self) except -1:
        """Release the request."""
        self.rules.request = None
        self.rules.impression = None
        self.arrangement.made = None
        return 0

    cdef int resolve(self, Terms terms) except -1:
        if terms.count > self.values_capacity:
            self.values = <uint32_t *>grow(
                self.values, &self.values_capacity, terms.count, sizeof(uint32_t))
        sb_resolve(self.layer.head, terms.terms, terms.count, self.values)
        return 0

    cdef inline void rewind(self) noexcept:
        """Go back to the first block."""
        cdef Arrangement arranged = self.arrangement
        if arranged.n_cursors:
            memcpy(self.cursors, arranged.fresh, arranged.n_cursors * sizeof(sb_cursor))
        self.block = 0
        self.word = SB_WORDS
        self.finished = arranged.refuses_all or self.rules.refuses_all

    cdef int find(self) except -1:
        """If no match is left, find the next ones: those with guaranteed deals first, then all
        others."""
        if self.n_matches:
            return 0
        if self.first_look:
            self.walk()
            if self.n_matches:
                return 0
            self.first_look = False
            if not self.halted:
                self.rewind()
        return self.walk()

    cdef int walk(self) except -1:
        """Find the eligible campaigns with the next highest price.

        The first walk looks for guaranteed deals; the second one skips those already found.
        """
        cdef uint32_t rank, block
        cdef int64_t price
        cdef const sb_campaign *campaigns = self.layer.campaigns
        cdef Arrangement arranged = self.arrangement
        cdef Rules rules = self.rules
        while not self.finished:
            while self.word < SB_WORDS and not self.bits[self.word]:
                self.word += 1
            if self.word == SB_WORDS:
                if self.block == self.layer.head.blocks:
                    break
                if sb_spend(self.allowance, self.block_steps):
                    self.halted = not self.n_matches
                    break
                price = campaigns[self.block * SB_BLOCK].price
                if price < rules.lowest or self.n_matches and price < self.match_price:
                    if not self.n_matches:
                        break
                    return 0
                memset(self.bits, 0xff, sizeof(self.bits))
                if price < rules.undealt or self.first_look:
                    block = sb_gather(self.bits, self.block, self.layer.head.blocks,
                                      &arranged.deals, self.cursors)
                    if block != self.block:
                        self.block = block
                        continue
                sb_narrow(self.bits, self.block, arranged.rows, arranged.request_rows,
                          arranged.n_rows, arranged.flats, arranged.n_flats, self.cursors)
                self.block += 1
                self.word = 0
                continue
            rank = ((self.block - 1) * SB_BLOCK + self.word * 64
                    + sb_lowest(self.bits[self.word]))
            price = campaigns[rank].price
            if self.n_matches and price < self.match_price:
                return 0
            if price < rules.lowest:
                break
            if sb_spend(self.allowance, 1 + arranged.n_groups):
                self.halted = not self.n_matches
                break
            self.bits[self.word] &= self.bits[self.word] - 1
            self.n_candidates += 1
            if not self.is_admitted(rank):
                continue
            self.n_verified += 1
            self.allowance.steps -= 4 + campaigns[rank].categories
            if rules.refusal(rank) == NOT_REFUSED and rules.has_guarantee() == self.first_look:
                self.match_price = price
                self.add(rank)
                if rank + 1 < self.layer.head.campaigns and campaigns[rank + 1].price < price:
                    return 0
        self.finished = True
        return 0

    cdef inline bint is_admitted(self, uint32_t rank) noexcept:
        """Return whether the groups with posting lists admit the candidate."""
        cdef uint32_t i
        for i in range(self.arrangement.n_groups):
            if not sb_admits(&self.arrangement.groups[i], self.cursors, rank):
                return False
        return True

    cdef inline int add(self, uint32_t rank) except -1:
        cdef Match *entry
        if self.n_matches == self.matches_capacity:
            self.matches = <Match *>grow(
                self.matches, &self.matches_capacity, self.n_matches + 1, sizeof(Match))
        entry = self.matches + self.n_matches
        entry.rank = rank
        entry.creative = self.rules.creative
        entry.deal = self.rules.deal
        self.n_matches += 1
        return 0

    cdef bint is_better_than(self, LayerSearch other) noexcept:
        """Return whether this search's best match comes before the other's."""
        cdef uint32_t mine, its
        if not self.n_matches or not other.n_matches:
            return self.n_matches != 0
        if self.first_look != other.first_look:
            return self.first_look
        if self.match_price != other.match_price:
            return self.match_price > other.match_price
        mine = self.best()
        its = other.best()
        return self.matches[mine].score >= other.matches[its].score

    cdef uint32_t best(self) noexcept:
        """Return the index of the match with the highest score."""
        cdef Match *matches = self.matches
        cdef uint32_t i, best = 0
        for i in range(self.n_matches):
            matches[i].score = sb_score(
                self.rules.asker.auction, self.layer.details[matches[i].rank].seed)
            if matches[i].score > matches[best].score:
                best = i
        return best

    cdef Match take(self) noexcept:
        """Remove and return the best match."""
        cdef uint32_t best = self.best() if self.n_matches > 1 else 0
        cdef Match taken = self.matches[best]
        self.n_matches -= 1
        self.matches[best] = self.matches[self.n_matches]
        return taken

    cdef tuple explain(self, uint32_t rank):
        """Return (Refusal, dimension) for a campaign, candidate or not; see Query.explain."""
        cdef int refusal = REFUSED_INACTIVE, dimension = -1
        if sb_bit(self.arrangement.rows[0], rank):
            dimension = self.arrangement.refusing_dimension(rank)
            refusal = REFUSED_TARGETING if dimension >= 0 else self.rules.refusal(rank)
        return Refusal(refusal), dimension


# -- the index and its queries ---------------------------------------------------------------------

cdef enum:
    IMPRESSION_STEPS = 32  # the cost of reading an impression
    SPARES = 64  # workspaces kept for reuse: as many as one worker's bids that await the ledger

FORMAT_DIMENSION = SB_FORMAT  # the formats of creatives, which no campaign targets


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Index:
    def __cinit__(self, object source, object overlay=None):
        self.base = Layer(source)
        self.interest.used = self.base.used
        self.interest.families = self.base.head.families
        self.interest.has_caps = self.base.head.capped != 0
        if overlay is not None:
            self.over = Layer(overlay)
            self.base.hide(self.over)
            self.interest.used |= self.over.used
            self.interest.families |= self.over.head.families
            self.interest.has_caps |= self.over.head.capped != 0

    def __len__(self):
        return self.base.head.campaigns + (0 if self.over is None else self.over.head.campaigns)

    def targets(self, uint32_t dimension):
        if dimension >= SB_DIMENSIONS:
            raise ValueError("no such dimension")
        return (self.interest.used >> dimension & 1) != 0

    @property
    def has_caps(self):
        return self.interest.has_caps

    def rank(self, str id not None):
        cdef const sb_id *entry
        if self.over is not None:
            entry = self.over.find(id)
            if entry is not NULL:
                return None if entry.rank == SB_GONE else self.base.head.campaigns + entry.rank
        entry = self.base.find(id)
        return None if entry is NULL or entry.rank == SB_GONE else entry.rank

    cdef Layer layer(self, uint32_t *rank):
        """Return the layer that has the campaign, and set `rank` to its rank there."""
        if rank[0] < self.base.head.campaigns:
            return self.base
        rank[0] -= self.base.head.campaigns
        if self.over is None or rank[0] >= self.over.head.campaigns:
            raise IndexError("no such rank")
        return self.over

    def payload(self, uint32_t rank):
        return self.layer(&rank).payload(rank)

    def price(self, uint32_t rank):
        return self.layer(&rank).campaigns[rank].price

    def advertiser(self, uint32_t rank):
        return self.layer(&rank).advertiser(rank)

    def suspend(self, str id not None, str creative not None, str canonical not None):
        cdef object found = self.rank(id)
        cdef uint32_t rank
        if found is not None:
            rank = found
            self.layer(&rank).suspend(rank, creative, canonical)

    def query(self, object lookups, object request, str ssp not None,
              str canonical not None, int64_t now_ms, double left_s=INFINITY,
              double processor_s=INFINITY, RefusedRanks refused=None):
        return self.start(lookups, lookups.reader, request, ssp, canonical, now_ms, left_s,
                          processor_s, refused)

    cdef Query start(self, object lookups, Reader reader, object request, str ssp, str canonical,
                     int64_t now_ms, double left_s, double processor_s, RefusedRanks refused):
        cdef Query query = Query.__new__(Query, self)
        if refused is not None and refused.index is not self:
            raise ValueError("the refused campaigns belong to another index")
        query.refused = refused
        if reader is None or reader.structs is None:
            raise ValueError("the reader has no structs")
        if reader.checked(request, BIDREQUEST) is None:
            raise TypeError("not a decoded BidRequest")
        if left_s != INFINITY or processor_s != INFINITY:
            sb_allow(&query.allowance, left_s, processor_s)
        query.workspace.impression.lookups, query.workspace.impression.reader = lookups, reader
        query.workspace.request.read(
            lookups, reader, request, ssp, canonical, now_ms, &self.interest)
        query.take_request()
        return query


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class RefusedRanks:
    def __cinit__(self, Index index not None, RefusedRanks others=None):
        self.index = index
        self.base = index.base.copy_of(index.base.active if others is None else others.base)
        if index.over is not None:
            self.over = index.over.copy_of(index.over.active if others is None else others.over)

    def __dealloc__(self):
        PyMem_Free(self.base)
        PyMem_Free(self.over)

    cdef uint64_t *row(self, Layer layer) noexcept:
        """Return a layer's row of campaigns that may bid."""
        return self.base if layer is self.index.base else self.over

    def add(self, uint32_t rank):
        cdef Layer layer = self.index.layer(&rank)
        self.row(layer)[rank >> 6] &= ~(<uint64_t>1 << (rank & 63))

    def discard(self, uint32_t rank):
        cdef Layer layer = self.index.layer(&rank)
        self.row(layer)[rank >> 6] |= layer.active[rank >> 6] & <uint64_t>1 << (rank & 63)


# Reusable memory of readings and searches, shared by the queries of an index.
@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Workspace:

    def __cinit__(self, Index index):
        self.request = RequestReading()
        self.impression = ImpressionReading()
        self.impression.used = index.interest.used
        self.request.terms.head = self.impression.terms.head = index.base.head
        self.base = LayerSearch(index.base)
        self.over = None if index.over is None else LayerSearch(index.over)

    cdef int forget(self) except -1:
        """Release the request."""
        self.request.forget()
        self.impression.forget()
        self.base.forget()
        if self.over is not None:
            self.over.forget()
        return 0


@cython.no_gc  # it is part of no cycle
@cython.final
@cython.freelist(8)
cdef class Query:
    def __cinit__(self, Index index):
        self.index = index
        self.workspace = index.spare
        if self.workspace is None:
            self.workspace = Workspace(index)
        else:
            index.spare, self.workspace.next = self.workspace.next, None
            index.spares -= 1
        self.workspace.impression.allowance = &self.allowance
        sb_allow_all(&self.allowance)

    def __dealloc__(self):
        if self.index is not None and self.workspace is not None:
            self.workspace.forget()
            if self.index.spares < SPARES:
                self.workspace.next, self.index.spare = self.index.spare, self.workspace
                self.index.spares += 1

    cdef int take_request(self) except -1:
        """Start the searches, once the request is read."""
        cdef Workspace workspace = self.workspace
        workspace.base.take_request(workspace.request, &self.allowance)
        if workspace.over is not None:
            workspace.over.take_request(workspace.request, &self.allowance)
        if self.refused is not None:
            workspace.base.arrangement.rows[0] = self.refused.base
            if workspace.over is not None:
                workspace.over.arrangement.rows[0] = self.refused.over
        return 0

    cdef int take_impression(self) except -1:
        """Restart the searches, once an impression is read."""
        cdef Workspace workspace = self.workspace
        workspace.base.take_impression(workspace.impression)
        if workspace.over is not None:
            workspace.over.take_impression(workspace.impression)
        return 0

    cpdef bint impression(self, object imp, list rivals=None) except -1:
        cdef Workspace workspace = self.workspace
        cdef bint rated = False, has_too_much
        self.imp = None
        self.stop()
        if workspace.request.reader.checked(imp, IMP) is None:
            raise TypeError("not a decoded Imp")
        has_too_much = workspace.request.terms.has_too_much()
        if not has_too_much and not sb_spend(&self.allowance, IMPRESSION_STEPS):
            rated = workspace.impression.read(imp, rivals)
            has_too_much = workspace.impression.terms.has_too_much()
        if has_too_much or self.allowance.is_over:
            self.undecided += 1
            return False
        if not rated:
            return False
        self.imp = imp
        self.take_impression()
        return True

    cdef void stop(self) noexcept:
        """End the search for the impression."""
        self.workspace.base.stop()
        if self.workspace.over is not None:
            self.workspace.over.stop()

    cpdef int allow(self, double left_s, double processor_s) except -1:
        sb_allow(&self.allowance, left_s, processor_s)
        return 0

    cpdef bint has_time(self) except -1:
        return not sb_look(&self.allowance)

    def next(self):
        cdef Match best
        return (best.rank, best.creative, best.deal) if self.take_next(&best) else None

    cdef bint take_next(self, Match *best) except -1:
        """Take the next best campaign; return whether there is one."""
        cdef LayerSearch base = self.workspace.base, over = self.workspace.over
        base.find()
        if over is not None:
            over.find()
        if base.halted or over is not None and over.halted:
            self.undecided += 1
            self.stop()
            return False
        if over is None or base.is_better_than(over):
            if not base.n_matches:
                return False
            best[0] = base.take()
        elif over.n_matches:
            best[0] = over.take()
            best.rank += self.index.base.head.campaigns
        else:
            return False
        return True

    def explain(self, uint32_t rank):
        if self.imp is None:
            raise ValueError("no impression is set")
        if self.index.layer(&rank) is self.index.base:
            return self.workspace.base.explain(rank)
        return self.workspace.over.explain(rank)

    def carried(self):
        values = self.workspace.request.terms.by_dimension()
        if self.imp is not None:
            values.update(self.workspace.impression.terms.by_dimension())
        return values

    cdef set noted(self):
        """Return the restricting lists with a meaningless entry, of the request and the impressions
        read so far; None if there is none."""
        cdef set own = self.workspace.request.terms.noted
        cdef set of_impressions = self.workspace.impression.terms.noted
        if own is None or of_impressions is None:
            return own or of_impressions
        return own | of_impressions

    @property
    def request(self):
        return self.workspace.request.request

    @property
    def user(self):
        return self.workspace.request.user

    @property
    def point(self):
        cdef Asker *asker = &self.workspace.request.asker
        return (asker.lat, asker.lon) if asker.located else None

    @property
    def declares(self):
        return self.workspace.request.asker.asks_dsa

    @property
    def counts(self):
        cdef LayerSearch search = self.workspace.base
        cdef Arrangement arranged = search.arrangement
        return {"rows": arranged.n_rows, "flats": arranged.n_flats, "groups": arranged.n_groups,
                "postings": arranged.n_cursors, "blocks": search.block,
                "candidates": search.n_candidates, "verified": search.n_verified}
