# cython: auto_pickle=False, autotestdict=False
"""The campaign matcher: of an index (layout.h), the best campaign for an impression.

A query *reads* the decoded structs of the request into terms, the keys that a campaign may target
(_request, _impression). Each layer of the index, the base and the overlay, has a search of its own
(_search), which *arranges* the filters of its blocks (_arrangement), walks the campaigns and checks
which *rule* refuses one (_rules). Both use the same terms.

The cost of a request is bounded (contract 3): snapbid/campaigns/README.md lists every loop over a
request's content. Reading is linear in the request; the walk ends when its allowance is used up.
"""

cimport cython
from libc.math cimport INFINITY

from allowance cimport *
from layout cimport *
from snapbid.catalog._reader cimport *
from snapbid.catalog._search cimport Match

cdef enum:
    IMPRESSION_STEPS = 32  # the cost of reading an impression

FORMAT_DIMENSION = SB_FORMAT  # the formats of creatives, which no campaign targets


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Index:
    """An index in memory (a read-only buffer), and this process's view of it.

    An overlay (another buffer with an index) hides the campaigns whose ids it has; the ranks of its
    own campaigns follow the base's. Raises ValueError if a buffer is not an index of this version.
    """

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
        """Return the number of ranks, including those of hidden campaigns."""
        return self.base.head.campaigns + (0 if self.over is None else self.over.head.campaigns)

    def targets(self, uint32_t dimension):
        """Return whether any campaign has an entry in this dimension (a number of `DIMENSIONS`)."""
        if dimension >= SB_DIMENSIONS:
            raise ValueError("no such dimension")
        return (self.interest.used >> dimension & 1) != 0

    @property
    def has_caps(self):
        """Whether any campaign bids only for a recognised user."""
        return self.interest.has_caps

    def rank(self, str id not None):
        """Return the rank of a campaign, or None."""
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
        """Return the payload stored with the campaign."""
        return self.layer(&rank).payload(rank)

    def price(self, uint32_t rank):
        """Return the campaign's CPM in micro-USD."""
        return self.layer(&rank).campaigns[rank].price

    def advertiser(self, uint32_t rank):
        """Return the campaign's advertiser domain, in lower case."""
        return self.layer(&rank).advertiser(rank)

    def set_active(self, uint32_t rank, bint active):
        """Let a campaign bid or not, in this process; hidden and paused ones never do."""
        self.layer(&rank).set_active(rank, active)

    def suspend(self, str id not None, str creative not None, str canonical not None):
        """Suspend a campaign's creative at an SSP (canonical id), in this process.

        Unknown and hidden campaigns and creatives are ignored.
        """
        cdef object found = self.rank(id)
        cdef uint32_t rank
        if found is not None:
            rank = found
            self.layer(&rank).suspend(rank, creative, canonical)

    def query(self, Reader reader not None, object request, str ssp not None,
              str canonical not None, int64_t now_ms, double left_s=INFINITY,
              double processor_s=INFINITY):
        """Start the search for a decoded request to an SSP, at a time (UTC epoch ms).

        It may take `left_s`, and `processor_s` of this thread's processor time.
        """
        return self.start(reader, request, ssp, canonical, now_ms, left_s, processor_s)

    cdef Query start(self, Reader reader, object request, str ssp, str canonical, int64_t now_ms,
                     double left_s, double processor_s):
        cdef Query query = Query.__new__(Query, self)
        if reader.structs is None:
            raise ValueError("the reader has no structs")
        if reader.checked(request, BIDREQUEST) is None:
            raise TypeError("no request")
        if left_s != INFINITY or processor_s != INFINITY:
            sb_allow(&query.allowance, left_s, processor_s)
        query.workspace.impression.reader = reader
        query.workspace.request.read(reader, request, ssp, canonical, now_ms, &self.interest)
        query.take_request()
        return query


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
    """The search for one request: `impression`, then `next` until it gives None."""

    def __cinit__(self, Index index):
        self.index = index
        self.workspace = index.spare
        index.spare = None
        if self.workspace is None:
            self.workspace = Workspace(index)
        self.workspace.impression.allowance = &self.allowance
        sb_allow_all(&self.allowance)

    def __dealloc__(self):
        if self.index is not None and self.workspace is not None:
            self.workspace.forget()
            self.index.spare = self.workspace

    cdef int take_request(self) except -1:
        """Start the searches, once the request is read."""
        cdef Workspace workspace = self.workspace
        workspace.base.take_request(workspace.request, &self.allowance)
        if workspace.over is not None:
            workspace.over.take_request(workspace.request, &self.allowance)
        return 0

    cdef int take_impression(self) except -1:
        """Restart the searches, once an impression is read."""
        cdef Workspace workspace = self.workspace
        workspace.base.take_impression(workspace.impression)
        if workspace.over is not None:
            workspace.over.take_impression(workspace.impression)
        return 0

    cpdef bint impression(self, object imp, list rivals=None) except -1:
        """Start on an impression; return False if its floor has no exchange rate, or the time is
        up.

        rivals: advertisers that may not answer, because they have other impressions of its pod; in
        the form of Index.advertiser.
        """
        cdef Workspace workspace = self.workspace
        cdef bint rated = False
        self.imp = None
        self.stop()
        if workspace.request.reader.checked(imp, IMP) is None:
            raise TypeError("no impression")
        if not sb_spend(&self.allowance, IMPRESSION_STEPS):
            rated = workspace.impression.read(imp, rivals)
        if self.allowance.is_over:
            self.undecided += 1
            return False
        if not rated:
            return False
        self.imp = imp
        self.take_impression()
        return True

    cdef void stop(self) noexcept:
        """Find nothing more for the impression."""
        self.workspace.base.stop()
        if self.workspace.over is not None:
            self.workspace.over.stop()

    cpdef int allow(self, double left_s, double processor_s) except -1:
        """Allow the search this much time, and processor time, from now on."""
        sb_allow(&self.allowance, left_s, processor_s)
        return 0

    cpdef bint has_time(self) except -1:
        """Return whether some of the time allowed is left."""
        return not sb_look(&self.allowance)

    def next(self):
        """Return the next best campaign as (rank, creative, deal), or None.

        creative: an index into the campaign's creatives; deal: into the impression's deals, or -1.
        """
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
        """Return the first rule that refuses the campaign for the impression: (Refusal, dimension).

        dimension: a number of `DIMENSIONS`, or FORMAT_DIMENSION where no creative has a format that
        the impression takes; -1 for a rule other than targeting. The search is not affected.
        """
        if self.imp is None:
            raise ValueError("no impression is set")
        if self.index.layer(&rank) is self.index.base:
            return self.workspace.base.explain(rank)
        return self.workspace.over.explain(rank)

    def carried(self):
        """The values of the request and the current impression by dimension, in normal form.
        Dimensions in which no campaign has an entry are not read.
        """
        values = self.workspace.request.terms.by_dimension()
        if self.imp is not None:
            values.update(self.workspace.impression.terms.by_dimension())
        return values

    @property
    def request(self):
        """The decoded request."""
        return self.workspace.request.request

    @property
    def user(self):
        """The recognised user, for frequency caps; or None."""
        return self.workspace.request.user

    @property
    def point(self):
        """(lat, lon) in degrees if the request has them and they may be used, else None."""
        cdef Asker *asker = &self.workspace.request.asker
        return (asker.lat, asker.lon) if asker.located else None

    @property
    def declares(self):
        """Whether the request asks for declarations under the Digital Services Act."""
        return self.workspace.request.asker.asks_dsa

    @property
    def counts(self):
        """The search's work so far, without the overlay's: the rows, groups of rows and groups with
        posting lists that narrow a block; then the blocks, candidates and verified candidates.
        """
        cdef LayerSearch search = self.workspace.base
        cdef Arrangement arranged = search.arrangement
        return {"rows": arranged.n_rows, "flats": arranged.n_flats, "groups": arranged.n_groups,
                "postings": arranged.n_cursors, "blocks": search.block,
                "candidates": search.n_candidates, "verified": search.n_verified}
