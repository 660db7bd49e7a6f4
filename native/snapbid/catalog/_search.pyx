# cython: auto_pickle=False, autotestdict=False
"""See _search.pxd."""

cimport cython
from cpython.mem cimport PyMem_Free
from libc.string cimport memcpy, memset

from allowance cimport sb_spend
from layout cimport *
from memory cimport grow
from search cimport *
from snapbid.catalog._rules cimport NOT_REFUSED, REFUSED_INACTIVE, REFUSED_TARGETING


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
        """Start over with a request; the search may take `allowance`."""
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
        """Find nothing more for the impression."""
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
        """If no match is left, find the next ones: those with guaranteed deals, then all others."""
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
        """Find the eligible campaigns of the next highest price. The first walk looks for
        guaranteed deals, the second one leaves out what the first one found.
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
        """Return (Refusal, dimension) of a campaign, candidate or not; see Query.explain."""
        cdef int dimension
        if not sb_bit(self.layer.active, rank):
            return self.rules.named(REFUSED_INACTIVE), -1
        dimension = self.arrangement.refusing_dimension(rank)
        if dimension >= 0:
            return self.rules.named(REFUSED_TARGETING), dimension
        return self.rules.named(self.rules.refusal(rank)), -1
