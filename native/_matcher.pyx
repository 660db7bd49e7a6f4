# cython: auto_pickle=False, autotestdict=False
"""The campaign matcher: of an index (layout.h), the best campaign for an impression.

A search walks the campaigns in rank order, a block of 512 at a time. The rows and postings of what
the request carries are combined into the block's candidates, and only those are verified one by
one against what is no row: time, floors and deals, the request's limits, distances, creatives.
The search ends with the first price that has an eligible campaign, and can be resumed for the
next best one.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.float cimport PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check
from libc.math cimport M_PI, cos, sin
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from layout cimport *

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

cdef extern from *:
    """
    #define sb_lowest(word) __builtin_ctzll(word)
    """
    int sb_lowest(uint64_t word) nogil

# Places in the features' tuples; exchange/features.py names them in the same order.
cdef enum:
    F_AUCTION, F_NOW_MS, F_SSP, F_CANONICAL, F_COUNTRY, F_REGION, F_CITY, F_POSTAL
    F_DEVICE_TYPE, F_CONNECTION, F_OS, F_BROWSER, F_CARRIER, F_LANGUAGE, F_INVENTORY, F_DOMAIN
    F_BUNDLE, F_PUBLISHERS, F_CATEGORIES, F_SEGMENTS, F_LAT, F_LON
    F_BCAT, F_BADV, F_BAPP, F_BSEAT, F_WSEAT, F_USER, F_SIZE

cdef enum:
    I_FLOOR, I_SECURE, I_PRIVATE, I_POSITIONS, I_SIZES, I_BANNER_BATTR, I_VIDEO, I_AUDIO
    I_NATIVE, I_DEALS, I_SIZE

cdef enum:
    STREAM_MIMES, STREAM_PROTOCOLS, STREAM_MIN, STREAM_MAX, STREAM_BATTR

cdef enum:
    DEAL_ID, DEAL_FLOOR, DEAL_SEATS, DEAL_ADVERTISERS

cdef enum:
    MAX_ROWS = 64

# Why a campaign is refused; the first that holds.
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

FORMAT = SB_FORMAT  # the dimension of formats, which no campaign names

cdef enum:
    HOUR_MS = 3600000
    WEEK_HOURS = 168
    EPOCH_HOUR = 72  # 1 January 1970 was a Thursday


cdef struct Group:
    # A dimension that needs more than a row: (open | any include) & ~any exclude.
    const uint64_t *open  # NULL: nobody has an include
    uint32_t dimension
    uint32_t first, includes, excludes  # in the cursors: includes, then excludes


cdef struct Found:
    uint64_t score
    uint32_t rank
    uint32_t creative
    int deal


cdef struct Stream:  # what an impression's video or audio asks for
    bint present, has_mimes, has_protocols
    int64_t shortest, longest  # seconds, -1: not asked
    uint32_t protocols  # bits


cdef inline object _item(object features, Py_ssize_t place):
    return <object>PyTuple_GET_ITEM(features, place)


cdef inline bint _integer(object number, int64_t *result) noexcept:
    """A non-negative integer of 63 bits; anything else counts as absent."""
    cdef int overflow = 0
    if not PyLong_Check(number):
        return False
    result[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and result[0] >= 0


cdef class Index:
    """An index in memory (a read-only buffer), and this process's view of it.

    An overlay (another buffer with an index) hides the campaigns whose ids it has; the ranks of its
    own campaigns count on from the base's. Raises ValueError where a buffer holds no index of this
    version.
    """

    cdef Py_buffer buffer
    cdef const sb_header *head
    cdef const char *base
    cdef const sb_value *values
    cdef const sb_dimension *dimensions
    cdef const sb_campaign *campaigns
    cdef const sb_detail *details
    cdef const sb_creative *creatives
    cdef const uint32_t *lists
    cdef uint64_t *active
    cdef uint32_t *marks  # value -> the epoch in which it was marked
    cdef uint32_t epoch
    cdef uint64_t owner  # serial of the query whose marks they are
    cdef uint64_t queries
    cdef Index over  # the overlay, or None
    cdef uint64_t *shown  # a row: campaigns that the overlay does not hide; NULL: all

    def __cinit__(self, object source, object overlay=None):
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
        cdef size_t row = self.head.blocks * SB_WORDS * sizeof(uint64_t)
        self.active = <uint64_t *>PyMem_Malloc(max(row, 1))
        self.marks = <uint32_t *>PyMem_Malloc(self.head.values * sizeof(uint32_t))
        if self.active is NULL or self.marks is NULL:
            raise MemoryError
        memcpy(self.active, self.base + self.head.active, row)
        memset(self.marks, 0, self.head.values * sizeof(uint32_t))
        if overlay is not None:
            self.over = Index(overlay)
            self.shown = <uint64_t *>PyMem_Malloc(max(row, 1))
            if self.shown is NULL:
                raise MemoryError
            memset(self.shown, 0xff, row)
            self.hide()

    cdef void hide(self) noexcept:
        """Takes out the campaigns whose ids the overlay has."""
        cdef const sb_header *over = self.over.head
        cdef const sb_id *ids = <const sb_id *>(self.over.base + over.ids)
        cdef const sb_id *found
        cdef const char *key
        cdef uint32_t i, size
        for i in range(over.n_ids):
            if ids[i].key != SB_FREE:
                key = self.over.base + over.keys + ids[i].key
                memcpy(&size, key, sizeof(size))
                found = sb_find_id(self.head, key + sizeof(size), size & 0xffffff)
                if found is not NULL and found.rank != SB_GONE:
                    self.shown[found.rank >> 6] &= ~(<uint64_t>1 << (found.rank & 63))
                    self.active[found.rank >> 6] &= ~(<uint64_t>1 << (found.rank & 63))

    def __dealloc__(self):
        PyMem_Free(self.shown)
        PyMem_Free(self.active)
        PyMem_Free(self.marks)
        PyBuffer_Release(&self.buffer)

    def __len__(self):
        """How many ranks there are, those of hidden campaigns among them."""
        return self.head.campaigns + (0 if self.over is None else self.over.head.campaigns)

    def targets(self, uint32_t dimension):
        """Whether any campaign has an entry in this dimension (a number of `DIMENSIONS`)."""
        if dimension >= SB_DIMENSIONS:
            raise ValueError("no such dimension")
        return ((self.dimensions[dimension].includes or self.dimensions[dimension].excludes) != 0
                or self.over is not None and self.over.targets(dimension))

    @property
    def has_caps(self):
        """Whether any campaign bids only for a recognised user."""
        return self.head.capped != 0 or self.over is not None and self.over.has_caps

    def rank(self, str id):
        """The rank of a campaign, or None."""
        cdef const sb_id *found
        encoded = id.encode()
        if self.over is not None:
            found = sb_find_id(self.over.head, <const char *>encoded, len(encoded))
            if found is not NULL:
                return None if found.rank == SB_GONE else self.head.campaigns + found.rank
        found = sb_find_id(self.head, <const char *>encoded, len(encoded))
        return None if found is NULL or found.rank == SB_GONE else found.rank

    cdef Index layer(self, uint32_t *rank):
        """The index that has the campaign, and its rank there."""
        if rank[0] < self.head.campaigns:
            return self
        rank[0] -= self.head.campaigns
        if self.over is None or rank[0] >= self.over.head.campaigns:
            raise IndexError("no such rank")
        return self.over

    def payload(self, uint32_t rank):
        """What was stored with the campaign."""
        cdef Index layer = self.layer(&rank)
        return PyBytes_FromStringAndSize(
            layer.base + layer.details[rank].payload, layer.details[rank].payload_size)

    def price(self, uint32_t rank):
        """The campaign's CPM, micro-USD."""
        cdef Index layer = self.layer(&rank)
        return layer.campaigns[rank].price

    def set_active(self, uint32_t rank, bint active):
        """Lets the campaign bid or not, in this process; a hidden one never does."""
        cdef Index layer = self.layer(&rank)
        cdef uint64_t bit = <uint64_t>1 << (rank & 63)
        if not active:
            layer.active[rank >> 6] &= ~bit
        elif layer.shown is NULL or layer.shown[rank >> 6] & bit:
            layer.active[rank >> 6] |= bit

    def query(self, object features):
        """Starts a request's search; `features` as exchange.features.RequestFeatures."""
        cdef Query query = Query.__new__(Query)
        if not isinstance(features, tuple) or PyTuple_GET_SIZE(features) != F_SIZE:
            raise ValueError("not a request's features")
        query.index = self
        self.queries += 1
        query.serial = self.queries
        query.start(features)
        if self.over is not None:
            query.over = self.over.query(features)
        return query

    cdef inline uint32_t new_epoch(self) noexcept:
        self.epoch += 1
        if self.epoch == 0:  # after four thousand million lists
            memset(self.marks, 0, self.head.values * sizeof(uint32_t))
            self.epoch = 1
        return self.epoch

    cdef inline uint32_t find_integer(self, uint32_t space, uint64_t key) noexcept:
        return sb_find(self.head, space, &key, 8)

    cdef uint32_t find_text(self, uint32_t space, object text, bint fold) except? 0xffffffff:
        """The value of a text (an integer is read as one), or SB_NONE."""
        cdef Py_ssize_t size, i
        cdef const char *raw
        cdef char folded[SB_KEY_MAX]
        if not PyUnicode_Check(text):
            if not PyLong_Check(text):
                return SB_NONE
            text = str(text)
        if fold and not PyUnicode_IS_ASCII(text):
            text = text.casefold()
            fold = False
        try:
            raw = PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError:  # a lone surrogate is in no campaign
            return SB_NONE
        if space == SB_AD_DOMAIN and size and raw[size - 1] == c'.':  # the root of the DNS
            size -= 1
        if size == 0 or size > SB_KEY_MAX:
            return SB_NONE
        if fold:
            for i in range(size):
                folded[i] = raw[i] + 32 if c'A' <= raw[i] <= c'Z' else raw[i]
            raw = folded
        return sb_find(self.head, space, raw, size)

    cdef int mark_texts(self, uint32_t space, object texts, bint fold, uint32_t epoch) except -1:
        for text in texts:
            self.marks[self.find_text(space, text, fold)] = epoch
        self.marks[SB_NONE] = 0
        return 0

    cdef int mark_integers(self, uint32_t space, object numbers, uint32_t epoch) except -1:
        cdef int64_t number
        for one in numbers:
            if _integer(one, &number):
                self.marks[self.find_integer(space, number)] = epoch
        self.marks[SB_NONE] = 0
        return 0

    cdef inline const sb_extra *extra(self, uint32_t rank) noexcept:
        """Of a campaign whose flags have any of SB_EXTRA."""
        return (<const sb_extra *>(self.base + self.head.extras)) + self.details[rank].extra

    cdef inline bint line_marked(self, uint32_t value, uint32_t epoch) noexcept:
        """Whether the value or one of its parents is marked."""
        while value != SB_NONE:
            if self.marks[value] == epoch:
                return True
            value = self.values[value].parent
        return False

    cdef inline bint any_marked(self, const uint32_t *values, uint32_t count,
                                uint32_t epoch) noexcept:
        cdef uint32_t i
        for i in range(count):
            if self.marks[values[i]] == epoch:
                return True
        return False


cdef class Query:
    """The search for one request: `impression`, then `next` until it gives None."""

    cdef Index index
    cdef Query over  # the search of the overlay, or None
    cdef uint64_t serial
    cdef object features
    cdef object wanted  # the impression's features
    cdef uint64_t auction
    cdef int64_t now_ms
    # What narrows the blocks; the request's part first, then the impression's.
    cdef const uint64_t *rows[MAX_ROWS]
    cdef unsigned char row_dimensions[MAX_ROWS]
    cdef uint32_t n_rows, request_rows
    cdef Group groups[SB_DIMENSIONS]
    cdef uint32_t n_groups, request_groups
    cdef sb_cursor *cursors
    cdef uint32_t n_cursors, request_cursors, room
    cdef sb_cursor *fresh  # the cursors as they stand at the first block
    # The limits.
    cdef uint32_t request_epoch, wseat_epoch, imp_epoch  # of the marks; 0: not marked yet
    cdef uint32_t attributes[SB_NATIVE + 1]  # by medium: bits of what is blocked
    cdef bint has_wseat, located, recognised
    cdef double lat, lon, cos_lat
    # The impression.
    cdef bint secure, private, native
    cdef int64_t floor, lowest
    cdef list sizes
    cdef Stream video, audio
    cdef list deals
    # The walk.
    cdef uint64_t bits[SB_WORDS]
    cdef uint32_t block, word
    cdef bint finished
    cdef Found *found
    cdef uint32_t n_found, found_room
    cdef int64_t found_price
    cdef uint32_t chosen_creative
    cdef int chosen_deal

    def __dealloc__(self):
        PyMem_Free(self.cursors)
        PyMem_Free(self.fresh)
        PyMem_Free(self.found)

    # -- what the request carries ------------------------------------------------------------

    cdef int start(self, object features) except -1:
        cdef int64_t number
        cdef uint32_t value
        cdef Py_ssize_t size
        cdef const char *raw
        cdef Index index = self.index
        self.features = features
        text = _item(features, F_AUCTION)
        raw = PyUnicode_AsUTF8AndSize(text, &size)
        self.auction = sb_hash(0, raw, size)
        self.now_ms = _item(features, F_NOW_MS)
        self.finished = True
        self.texts(SB_SSP, self.ssp_values(), False)
        self.text(SB_COUNTRY, _item(features, F_COUNTRY), False)
        self.text(SB_REGION, _item(features, F_REGION), True)
        self.text(SB_CITY, _item(features, F_CITY), True)
        self.text(SB_POSTAL, _item(features, F_POSTAL), True)
        self.integer(SB_DEVICE_TYPE, _item(features, F_DEVICE_TYPE))
        self.integer(SB_CONNECTION, _item(features, F_CONNECTION))
        self.text(SB_OS, _item(features, F_OS), False)
        self.text(SB_BROWSER, _item(features, F_BROWSER), False)
        self.text(SB_CARRIER, _item(features, F_CARRIER), True)
        self.text(SB_LANGUAGE, _item(features, F_LANGUAGE), False)
        self.texts(SB_INVENTORY, _item(features, F_INVENTORY), False)
        self.domain(_item(features, F_DOMAIN))
        self.text(SB_BUNDLE, _item(features, F_BUNDLE), False)
        self.texts(SB_PUBLISHER, _item(features, F_PUBLISHERS), False)
        self.categories(_item(features, F_CATEGORIES))
        self.texts(SB_SEGMENT, _item(features, F_SEGMENTS), False)
        number = (self.now_ms // HOUR_MS + EPOCH_HOUR) % WEEK_HOURS
        value = index.find_integer(SB_HOUR, number) if self.used(SB_HOUR) else SB_NONE
        self.one(SB_HOUR, value)
        lat = _item(features, F_LAT)
        lon = _item(features, F_LON)
        if PyFloat_CheckExact(lat) and PyFloat_CheckExact(lon):
            self.located = True
            self.lat = <double>lat * M_PI / 180
            self.lon = <double>lon * M_PI / 180
            self.cos_lat = cos(self.lat)
        self.has_wseat = bool(_item(features, F_WSEAT))
        self.recognised = _item(features, F_USER) is not None
        self.request_rows = self.n_rows
        self.request_groups = self.n_groups
        self.request_cursors = self.n_cursors
        return 0

    cdef object ssp_values(self):
        ssp = _item(self.features, F_SSP)
        canonical = _item(self.features, F_CANONICAL)
        return (ssp,) if ssp == canonical else (ssp, canonical)

    cdef inline bint used(self, uint32_t dimension) noexcept:
        return (self.index.dimensions[dimension].includes
                or self.index.dimensions[dimension].excludes)

    cdef inline const uint64_t *row_at(self, uint64_t offset) noexcept:
        return <const uint64_t *>(self.index.base + offset)

    cdef inline void row(self, uint32_t dimension, uint64_t offset) noexcept:
        self.rows[self.n_rows] = self.row_at(offset)
        self.row_dimensions[self.n_rows] = dimension
        self.n_rows += 1

    cdef int one(self, uint32_t dimension, uint32_t value) except -1:
        """The request has this value, or none that a campaign knows (SB_NONE)."""
        cdef const sb_value *known = self.index.values + value
        cdef const sb_dimension *open = self.index.dimensions + dimension
        if value == SB_NONE:
            if open.includes:
                self.row(dimension, open.open)
        elif known.row:
            self.row(dimension, <uint64_t>known.row * 64)
        elif known.included.count or known.excluded.count:
            self.begin(dimension)
            self.add(value)
            self.end()
        elif open.includes:
            self.row(dimension, open.open)
        return 0

    cdef int text(self, uint32_t dimension, object text, bint fold) except -1:
        if self.used(dimension):
            self.one(dimension, SB_NONE if text is None
                     else self.index.find_text(dimension, text, fold))
        return 0

    cdef int integer(self, uint32_t dimension, object number) except -1:
        cdef int64_t value
        if self.used(dimension):
            self.one(dimension, self.index.find_integer(dimension, value)
                     if _integer(number, &value) else SB_NONE)
        return 0

    cdef int texts(self, uint32_t dimension, object texts, bint fold) except -1:
        cdef uint32_t value, first = SB_NONE
        cdef bint begun = False
        if not self.used(dimension):
            return 0
        if texts is not None:
            for text in texts:
                value = self.index.find_text(dimension, text, fold)
                if value != SB_NONE and value != first:
                    if first == SB_NONE:
                        first = value
                        continue
                    if not begun:
                        begun = True
                        self.begin(dimension)
                        self.add(first)
                    self.add(value)
        if begun:
            self.end()
        else:
            self.one(dimension, first)
        return 0

    cdef int integers(self, uint32_t dimension, object numbers) except -1:
        cdef int64_t number
        if not self.used(dimension):
            return 0
        self.begin(dimension)
        if numbers is not None:
            for one in numbers:
                if _integer(one, &number):
                    self.add(self.index.find_integer(dimension, number))
        self.end()
        return 0

    cdef int domain(self, object domain) except -1:
        """The domain and its parents."""
        cdef Py_ssize_t size, i
        cdef const char *raw
        cdef char folded[SB_KEY_MAX]
        if not self.used(SB_DOMAIN):
            return 0
        if domain is None:
            return self.one(SB_DOMAIN, SB_NONE)
        if not PyUnicode_IS_ASCII(domain):
            domain = domain.casefold()
        try:
            raw = PyUnicode_AsUTF8AndSize(domain, &size)
        except UnicodeEncodeError:
            size = 0
        if size == 0 or size > SB_KEY_MAX:
            return self.one(SB_DOMAIN, SB_NONE)
        for i in range(size):
            folded[i] = raw[i] + 32 if c'A' <= raw[i] <= c'Z' else raw[i]
        self.begin(SB_DOMAIN)
        self.add(sb_find(self.index.head, SB_DOMAIN, folded, size))
        for i in range(size - 1):
            if folded[i] == c'.':
                self.add(sb_find(self.index.head, SB_DOMAIN, folded + i + 1, size - i - 1))
        self.end()
        return 0

    cdef int categories(self, object categories) except -1:
        """Each category and its IAB parent."""
        cdef Py_ssize_t size
        cdef const char *raw
        cdef const char *dash
        if not self.used(SB_CATEGORY):
            return 0
        if not categories:
            return self.one(SB_CATEGORY, SB_NONE)
        self.begin(SB_CATEGORY)
        for category in categories:
            self.add(self.index.find_text(SB_CATEGORY, category, False))
            if PyUnicode_Check(category):
                try:
                    raw = PyUnicode_AsUTF8AndSize(category, &size)
                except UnicodeEncodeError:
                    continue
                dash = <const char *>memchr(raw, c'-', size)
                if dash is not NULL:
                    self.add(sb_find(self.index.head, SB_CATEGORY, raw, dash - raw))
        self.end()
        return 0

    # -- groups ------------------------------------------------------------------------------

    cdef void begin(self, uint32_t dimension) noexcept:
        cdef Group *group = &self.groups[self.n_groups]
        cdef const sb_dimension *open = self.index.dimensions + dimension
        group.open = self.row_at(open.open) if open.includes else NULL
        group.dimension = dimension
        group.first = self.n_cursors
        group.includes = group.excludes = 0

    cdef int add(self, uint32_t value) except -1:
        cdef Group *group = &self.groups[self.n_groups]
        cdef const sb_value *known = self.index.values + value
        if value == SB_NONE:
            return 0
        if known.included.count and group.open is not NULL:
            self.cursor(&known.included)
            if group.excludes:  # includes stand before excludes
                self.swap(group.first + group.includes, self.n_cursors - 1)
            group.includes += 1
        if known.excluded.count:
            self.cursor(&known.excluded)
            group.excludes += 1
        return 0

    cdef void end(self) noexcept:
        cdef Group *group = &self.groups[self.n_groups]
        if group.includes or group.excludes:
            self.n_groups += 1
        elif group.open is not NULL:
            self.row(group.dimension, <const char *>group.open - self.index.base)

    cdef inline void swap(self, uint32_t a, uint32_t b) noexcept:
        cdef sb_cursor held = self.fresh[a]
        self.fresh[a] = self.fresh[b]
        self.fresh[b] = held

    cdef int cursor(self, const sb_posting *posting) except -1:
        cdef sb_cursor *one
        if self.n_cursors == self.room:
            self.grow()
        one = self.fresh + self.n_cursors
        self.n_cursors += 1
        if sb_is_row(posting.count, self.index.head.campaigns):
            one.row = self.row_at(<uint64_t>posting.at * 4)
            one.rank = one.end = NULL
        else:
            one.row = NULL
            one.rank = <const uint32_t *>(self.index.base + <uint64_t>posting.at * 4)
            one.end = one.rank + posting.count
        return 0

    cdef int grow(self) except -1:
        cdef uint32_t room = self.room * 2 if self.room else 16
        cdef void *cursors = PyMem_Realloc(self.cursors, room * sizeof(sb_cursor))
        if cursors is NULL:
            raise MemoryError
        self.cursors = <sb_cursor *>cursors
        cursors = PyMem_Realloc(self.fresh, room * sizeof(sb_cursor))
        if cursors is NULL:
            raise MemoryError
        self.fresh = <sb_cursor *>cursors
        self.room = room
        return 0

    # -- the impression ----------------------------------------------------------------------

    def impression(self, object wanted):
        """Turns to an impression; `wanted` as exchange.features.ImpressionFeatures."""
        cdef int64_t floor
        if not isinstance(wanted, tuple) or PyTuple_GET_SIZE(wanted) != I_SIZE:
            raise ValueError("not an impression's features")
        self.wanted = wanted
        self.n_rows = self.request_rows
        self.n_groups = self.request_groups
        self.n_cursors = self.request_cursors
        self.floor = self.lowest = _item(wanted, I_FLOOR)
        self.secure = _item(wanted, I_SECURE)
        self.private = _item(wanted, I_PRIVATE)
        self.native = _item(wanted, I_NATIVE)
        self.sizes = _item(wanted, I_SIZES)
        self.deals = _item(wanted, I_DEALS)
        self.imp_epoch = 0
        self.stream(&self.video, _item(wanted, I_VIDEO))
        self.stream(&self.audio, _item(wanted, I_AUDIO))
        self.formats()
        self.integers(SB_POSITION, _item(wanted, I_POSITIONS))
        self.offered()
        if self.n_cursors:
            memcpy(self.cursors, self.fresh, self.n_cursors * sizeof(sb_cursor))
        memset(self.bits, 0, sizeof(self.bits))
        self.block = 0
        self.word = SB_WORDS
        self.n_found = 0
        self.finished = False
        if self.over is not None:
            self.over.impression(wanted)

    cdef int stream(self, Stream *stream, object wanted) except -1:
        cdef int64_t seconds
        stream.present = wanted is not None
        if stream.present:
            stream.has_mimes = bool(_item(wanted, STREAM_MIMES))
            stream.has_protocols = bool(_item(wanted, STREAM_PROTOCOLS))
            stream.shortest = seconds if _integer(_item(wanted, STREAM_MIN), &seconds) else -1
            stream.longest = seconds if _integer(_item(wanted, STREAM_MAX), &seconds) else -1
        return 0

    cdef int formats(self) except -1:
        cdef Index index = self.index
        cdef uint64_t size
        self.begin(SB_FORMAT)
        if self.sizes is not None:
            for one in self.sizes:
                size = one
                self.add(index.find_integer(SB_FORMAT, <uint64_t>SB_BANNER << 56 | size))
        if self.video.present:
            self.add(index.find_integer(SB_FORMAT, <uint64_t>SB_VIDEO << 56))
        if self.audio.present:
            self.add(index.find_integer(SB_FORMAT, <uint64_t>SB_AUDIO << 56))
        if self.native:
            self.add(index.find_integer(SB_FORMAT, <uint64_t>SB_NATIVE << 56))
        self.end()
        return 0

    cdef int offered(self) except -1:
        """The deals: a dimension, and a lower bound of the price for those who use one."""
        cdef int64_t floor
        if self.private:
            self.lowest = (<int64_t>1 << 62)
        if self.deals is not None:
            for deal in self.deals:
                floor = _item(deal, DEAL_FLOOR)
                if 0 <= floor < self.lowest:
                    self.lowest = floor
        if self.used(SB_DEAL):
            self.begin(SB_DEAL)
            if self.deals is not None:
                for deal in self.deals:
                    self.add(self.index.find_text(SB_DEAL, _item(deal, DEAL_ID), False))
            self.end()
        return 0

    # -- the walk ----------------------------------------------------------------------------

    def next(self):
        """The best campaign not given yet: (rank, creative, deal), or None.

        creative: its place in the campaign's creatives; deal: in the impression's deals, or -1.
        """
        cdef Found found
        self.search()
        if self.over is None:
            if not self.n_found:
                return None
            found = self.take()
        else:
            self.over.search()
            if self.is_better_than(self.over):
                found = self.take()
            elif self.over.n_found:
                found = self.over.take()
                found.rank += self.index.head.campaigns
            else:
                return None
        return found.rank, found.creative, found.deal

    cdef bint is_better_than(self, Query other) noexcept:
        """Whether the best that this search has found comes before the best of the other."""
        if not self.n_found or not other.n_found:
            return self.n_found != 0
        if self.found_price != other.found_price:
            return self.found_price > other.found_price
        return self.found[self.best()].score >= other.found[other.best()].score

    cdef uint32_t best(self) noexcept:
        """Which of `found` has the highest score."""
        cdef uint32_t i, best = 0
        for i in range(1, self.n_found):
            if self.found[i].score > self.found[best].score:
                best = i
        return best

    cdef Found take(self) noexcept:
        """Takes the best out of `found`."""
        cdef uint32_t best = self.best()
        cdef Found found = self.found[best]
        self.n_found -= 1
        self.found[best] = self.found[self.n_found]
        return found

    cdef int search(self) except -1:
        """Fills an empty `found` with the eligible campaigns of the highest price that is left."""
        cdef uint32_t rank
        cdef int64_t price
        cdef Index index = self.index
        if self.n_found:
            return 0
        while not self.finished:
            while self.word < SB_WORDS and not self.bits[self.word]:
                self.word += 1
            if self.word == SB_WORDS:
                if self.block == index.head.blocks:
                    break
                price = index.campaigns[self.block * SB_BLOCK].price
                if price < self.lowest or self.n_found and price < self.found_price:
                    if not self.n_found:
                        break
                    return 0
                self.narrow()
                self.block += 1
                self.word = 0
                continue
            rank = ((self.block - 1) * SB_BLOCK + self.word * 64
                    + sb_lowest(self.bits[self.word]))
            price = index.campaigns[rank].price
            if self.n_found and price < self.found_price:
                return 0
            if price < self.lowest:
                break
            self.bits[self.word] &= self.bits[self.word] - 1
            if self.verify(rank) == NOT_REFUSED:
                self.found_price = price
                self.keep(rank)
        self.finished = True
        return 0

    cdef int keep(self, uint32_t rank) except -1:
        cdef void *found
        if self.n_found == self.found_room:
            self.found_room = self.found_room * 2 if self.found_room else 8
            found = PyMem_Realloc(self.found, self.found_room * sizeof(Found))
            if found is NULL:
                raise MemoryError
            self.found = <Found *>found
        self.found[self.n_found].rank = rank
        self.found[self.n_found].score = sb_score(
            self.auction, self.index.details[rank].seed)
        self.found[self.n_found].creative = self.chosen_creative
        self.found[self.n_found].deal = self.chosen_deal
        self.n_found += 1
        return 0

    cdef void narrow(self) noexcept:
        """The candidates of the block, into `bits`."""
        cdef size_t at = <size_t>self.block * SB_WORDS
        cdef const uint64_t *row = self.index.active + at
        cdef uint64_t *bits = self.bits
        cdef uint64_t any
        cdef uint32_t i, j
        for j in range(SB_WORDS):
            bits[j] = row[j]
        for i in range(self.n_rows):
            row = self.rows[i] + at
            for j in range(SB_WORDS):
                bits[j] &= row[j]
        for i in range(self.n_groups):
            any = 0
            for j in range(SB_WORDS):
                any |= bits[j]
            if not any:
                return
            self.restrict(&self.groups[i], self.cursors, self.block, bits)

    cdef inline void restrict(self, const Group *group, sb_cursor *cursors, uint32_t block,
                              uint64_t *bits) noexcept:
        """Leaves of the block's candidates those that the group admits."""
        cdef uint64_t gathered[SB_WORDS]
        cdef size_t at = <size_t>block * SB_WORDS
        cdef uint32_t j, k
        if group.open is not NULL:
            for j in range(SB_WORDS):
                gathered[j] = group.open[at + j]
            for k in range(group.first, group.first + group.includes):
                sb_collect(&cursors[k], block, gathered)
            for j in range(SB_WORDS):
                bits[j] &= gathered[j]
        if group.excludes:
            memset(gathered, 0, sizeof(gathered))
            for k in range(group.first + group.includes,
                           group.first + group.includes + group.excludes):
                sb_collect(&cursors[k], block, gathered)
            for j in range(SB_WORDS):
                bits[j] &= ~gathered[j]

    # -- one campaign, whether it is a candidate or not ----------------------------------------

    def explain(self, uint32_t rank):
        """The first rule that refuses the campaign for the impression: (Refusal, dimension).

        dimension: a number of `DIMENSIONS`, or FORMAT where no creative is of a format that the
        impression shows; -1 where the rule is no targeting. The search is left as it is.
        """
        cdef int dimension
        if self.wanted is None:
            raise ValueError("no impression is set")
        if self.index.layer(&rank) is not self.index:
            return self.over.explain(rank)
        if not self.index.active[rank >> 6] >> (rank & 63) & 1:
            return Refusal.REFUSED_INACTIVE, -1
        dimension = self.refusing_dimension(rank)
        if dimension >= 0:
            return Refusal.REFUSED_TARGETING, dimension
        return Refusal(self.verify(rank)), -1

    cdef int refusing_dimension(self, uint32_t rank) except -2:
        """The lowest dimension whose row or group refuses the campaign, or -1."""
        cdef uint64_t bits[SB_WORDS]
        cdef uint32_t i, lowest = SB_DIMENSIONS
        cdef uint32_t word = rank % SB_BLOCK >> 6
        cdef sb_cursor *cursors = <sb_cursor *>PyMem_Malloc(
            max(self.n_cursors, 1) * sizeof(sb_cursor))
        if cursors is NULL:
            raise MemoryError
        memcpy(cursors, self.fresh, self.n_cursors * sizeof(sb_cursor))
        for i in range(self.n_rows):
            if not self.rows[i][rank >> 6] >> (rank & 63) & 1:
                lowest = min(lowest, self.row_dimensions[i])
        for i in range(self.n_groups):
            memset(bits, 0xff, sizeof(bits))
            self.restrict(&self.groups[i], cursors, rank // SB_BLOCK, bits)
            if not bits[word] >> (rank & 63) & 1:
                lowest = min(lowest, self.groups[i].dimension)
        PyMem_Free(cursors)
        return -1 if lowest == SB_DIMENSIONS else <int>lowest

    # -- one candidate -----------------------------------------------------------------------

    cdef int verify(self, uint32_t rank) except -1:
        """Everything that is no row; sets the chosen creative and deal."""
        cdef const sb_campaign *campaign = self.index.campaigns + rank
        cdef const uint32_t *lists = self.index.lists + campaign.lists
        cdef const sb_extra *extra = self.index.extra(rank)
        cdef uint32_t *marks = self.index.marks
        cdef uint32_t i
        if campaign.flags & SB_TIMED and not extra.starts_ms <= self.now_ms < extra.ends_ms:
            return REFUSED_TIME
        if campaign.flags & SB_CAPPED and not self.recognised:
            return REFUSED_USER
        self.chosen_deal = -1
        if campaign.flags & SB_DEALS:
            if not self.choose_deal(campaign, lists + campaign.categories, extra.deals):
                return REFUSED_DEAL
        elif self.private:
            return REFUSED_PRIVATE_AUCTION
        elif campaign.price < self.floor:
            return REFUSED_FLOOR
        if self.imp_epoch == 0 or self.index.owner != self.serial:
            self.mark()
        if (self.has_wseat and marks[campaign.seat] != self.wseat_epoch
                or marks[campaign.seat] == self.request_epoch):
            return REFUSED_SEAT
        if marks[campaign.bundle] == self.request_epoch:
            return REFUSED_BLOCKED_APP
        if self.index.line_marked(campaign.advertiser, self.request_epoch):
            return REFUSED_BLOCKED_ADVERTISER
        for i in range(campaign.categories):
            if self.index.line_marked(lists[i], self.request_epoch):
                return REFUSED_BLOCKED_CATEGORY
        if campaign.flags & SB_CIRCLES and not self.near(extra):
            return REFUSED_DISTANCE
        if not self.choose_creative(campaign):
            return REFUSED_CREATIVE
        return NOT_REFUSED

    cdef int mark(self) except -1:
        """Marks what the request and the impression list, in epochs of this query's own."""
        cdef Index index = self.index
        if self.request_epoch == 0 or index.owner != self.serial:
            self.wseat_epoch = index.new_epoch()
            self.mark_texts(F_WSEAT, SB_SEAT, False, self.wseat_epoch)
            self.request_epoch = index.new_epoch()
            self.mark_texts(F_BCAT, SB_AD_CATEGORY, False, self.request_epoch)
            self.mark_texts(F_BADV, SB_AD_DOMAIN, True, self.request_epoch)
            self.mark_texts(F_BAPP, SB_AD_BUNDLE, False, self.request_epoch)
            self.mark_texts(F_BSEAT, SB_SEAT, False, self.request_epoch)
            index.owner = self.serial
        self.imp_epoch = index.new_epoch()
        self.attributes[SB_BANNER] = self.numbers(
            SB_BANNER_ATTRIBUTE, _item(self.wanted, I_BANNER_BATTR))
        self.attributes[SB_VIDEO] = self.mark_stream(
            &self.video, _item(self.wanted, I_VIDEO),
            SB_VIDEO_ATTRIBUTE, SB_VIDEO_MIME, SB_VIDEO_PROTOCOL)
        self.attributes[SB_AUDIO] = self.mark_stream(
            &self.audio, _item(self.wanted, I_AUDIO),
            SB_AUDIO_ATTRIBUTE, SB_AUDIO_MIME, SB_AUDIO_PROTOCOL)
        return 0

    cdef int mark_texts(self, Py_ssize_t place, uint32_t space, bint fold,
                        uint32_t epoch) except -1:
        texts = _item(self.features, place)
        if texts:
            self.index.mark_texts(space, texts, fold, epoch)
        return 0

    cdef uint32_t numbers(self, uint32_t space, object numbers) except? 0:
        """Bits of the numbers below SB_MASKED; the others are marked."""
        cdef uint32_t bits = 0
        cdef int64_t number
        if numbers is not None:
            for one in numbers:
                if _integer(one, &number):
                    if number < SB_MASKED:
                        bits |= <uint32_t>1 << number
                    else:
                        self.index.marks[self.index.find_integer(space, number)] = self.imp_epoch
            self.index.marks[SB_NONE] = 0
        return bits

    cdef uint32_t mark_stream(self, Stream *asked, object stream, uint32_t attribute,
                              uint32_t mime, uint32_t protocol) except? 0:
        """Marks what the stream lists; bits of the blocked attributes."""
        if stream is None:
            return 0
        asked.protocols = self.numbers(protocol, _item(stream, STREAM_PROTOCOLS))
        texts = _item(stream, STREAM_MIMES)
        if texts:
            self.index.mark_texts(mime, texts, False, self.imp_epoch)
        return self.numbers(attribute, _item(stream, STREAM_BATTR))

    cdef bint choose_deal(self, const sb_campaign *campaign, const uint32_t *own,
                          uint32_t deals) except -1:
        """The highest-floor deal that the campaign qualifies for."""
        cdef int place = -1
        cdef int64_t floor, best = -1
        cdef uint32_t value, i
        if self.deals is None:
            return False
        for deal in self.deals:
            place += 1
            floor = _item(deal, DEAL_FLOOR)
            if floor < 0 or floor > campaign.price or floor <= best:
                continue
            value = self.index.find_text(SB_DEAL, _item(deal, DEAL_ID), False)
            if value == SB_NONE:
                continue
            for i in range(deals):
                if own[i] == value:
                    break
            else:
                continue
            if (self.admits(_item(deal, DEAL_SEATS), SB_SEAT, False,
                            campaign.seat)
                    and self.admits(_item(deal, DEAL_ADVERTISERS), SB_AD_DOMAIN, True,
                                    campaign.advertiser)):
                best = floor
                self.chosen_deal = place
        return self.chosen_deal >= 0

    cdef bint admits(self, object texts, uint32_t space, bint fold, uint32_t own) except -1:
        """Whether a non-empty list names the campaign's value or a parent of it."""
        cdef uint32_t value, line
        if not texts:
            return True
        for text in texts:
            value = self.index.find_text(space, text, fold)
            line = own
            while value != SB_NONE and line != SB_NONE:
                if line == value:
                    return True
                line = self.index.values[line].parent
        return False

    cdef bint near(self, const sb_extra *extra) noexcept:
        """Haversine: within any circle."""
        cdef const sb_circle *circle = (
            <const sb_circle *>(self.index.base + self.index.head.circles) + extra.circles)
        cdef double a, b
        cdef uint32_t i
        if not self.located:
            return False
        for i in range(extra.n_circles):
            a = sin((circle[i].lat - self.lat) / 2)
            b = sin((circle[i].lon - self.lon) / 2)
            if a * a + circle[i].cos_lat * self.cos_lat * b * b <= circle[i].limit:
                return True
        return False

    cdef bint choose_creative(self, const sb_campaign *campaign) noexcept:
        cdef const sb_creative *creative = self.index.creatives + campaign.creatives
        cdef uint64_t score, best = 0
        cdef bint any = False
        cdef uint32_t i = 0
        while True:
            if self.fits(creative + i):
                score = sb_score(self.auction, creative[i].seed)
                if not any or score > best:
                    any = True
                    best = score
                    self.chosen_creative = i
            if creative[i].flags & SB_LAST:
                return any
            i += 1

    cdef bint fits(self, const sb_creative *creative) noexcept:
        if self.secure and not creative.flags & SB_SECURE:
            return False
        if creative.media == SB_BANNER:
            return self.fits_size(creative) and not self.blocked(creative)
        if creative.media == SB_VIDEO:
            return self.fits_stream(creative, &self.video)
        if creative.media == SB_AUDIO:
            return self.fits_stream(creative, &self.audio)
        return self.native

    cdef inline bint blocked(self, const sb_creative *creative) noexcept:
        return (creative.attributes & self.attributes[creative.media] != 0
                or self.index.any_marked(self.index.lists + creative.lists + creative.mimes,
                                         creative.other_attributes, self.imp_epoch))

    cdef bint fits_size(self, const sb_creative *creative) noexcept:
        cdef uint64_t size = <uint64_t>creative.w << 24 | creative.h
        if self.sizes is not None:
            for one in self.sizes:
                if <uint64_t>one == size:
                    return True
        return False

    cdef bint fits_stream(self, const sb_creative *creative, Stream *stream) noexcept:
        cdef const uint32_t *lists = self.index.lists + creative.lists
        if not stream.present or self.blocked(creative):
            return False
        if (stream.has_mimes and creative.mimes
                and not self.index.any_marked(lists, creative.mimes, self.imp_epoch)):
            return False
        lists += creative.mimes + creative.other_attributes
        if (stream.has_protocols and (creative.protocols or creative.other_protocols)
                and not creative.protocols & stream.protocols
                and not self.index.any_marked(lists, creative.other_protocols, self.imp_epoch)):
            return False
        if creative.duration < 0:
            return stream.shortest < 0 and stream.longest < 0
        return ((stream.shortest < 0 or creative.duration >= stream.shortest)
                and (stream.longest < 0 or creative.duration <= stream.longest))
