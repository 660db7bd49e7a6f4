# cython: auto_pickle=False, autotestdict=False
"""The campaign matcher: of an index (layout.h), the best campaign for an impression.

A query has four steps. It *reads* the decoded structs of the request into terms, the keys that a
campaign may target; *resolves* the terms to values of the index; *arranges* the rows and postings
of those values; and *walks* the campaigns in rank order, in blocks of 512. The rows of a block are
combined into its candidates, which are verified one by one against everything that is not a row.
The walk ends at the first price with an eligible campaign, and can be resumed for the next best
one. An overlay is a second index, whose own query uses the same terms.

What a request may cost is bounded (contract 3): snapbid/match/README.md lists every loop over what
a request brings. Reading is linear in the request; the walk ends when its allowance is used up.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check, PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport (PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_CheckExact,
                              PyUnicode_DecodeUTF8)
from libc.math cimport INFINITY, M_PI, cos, rint, sin
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memchr, memcpy, memset

from allowance cimport *
from layout cimport *
from search cimport *

cdef extern from *:
    """
    #include <structmember.h>
    static inline Py_ssize_t sb_member(PyObject *descriptor) {
        return Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
            && ((PyMemberDescrObject *)descriptor)->d_member->type == T_OBJECT_EX
            ? ((PyMemberDescrObject *)descriptor)->d_member->offset : -1;
    }
    static inline PyObject *sb_field(PyObject *owner, Py_ssize_t offset) {
        PyObject *value = *(PyObject **)((char *)owner + offset);
        return value ? value : Py_None;
    }
    """
    Py_ssize_t sb_member(object descriptor)
    PyObject *sb_field(PyObject *owner, Py_ssize_t offset)

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const char *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    bint PyList_CheckExact(object items)
    Py_ssize_t PyList_GET_SIZE(object items)
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t place)
    bint Py_IS_TYPE(object value, PyTypeObject *type)

cdef enum:
    MAX_ROWS = 2 * SB_DIMENSIONS + 2
    MAX_CURSORS = 64  # of a group; beyond, its postings are added up to a row

# What is looked at of a request (contract 3, "What a request may cost is bounded").
cdef enum:
    MAX_FORMATS = 100  # of a banner
    MAX_ENTRIES = 1000  # of another list that describes; lists that limit are read whole
    IMPRESSION_STEPS = 32  # what reading an impression counts as
    CALL_STEPS = 64  # and a call of exchange.lookups

cdef uint32_t NO_TERM = 0xffffffff
cdef uint32_t NO_DURATION = 0xffffffff

cdef enum:
    HOUR_MS = 3600000
    WEEK_HOURS = 168
    EPOCH_HOUR = 72  # 1 January 1970 was a Thursday
    MAX_SIDE = 0xffffff  # pixels
    UNKNOWN_MODE = 1 << 16  # a flag that no creative has
    MAX_DIGITS = 20
    INK = 8192  # bytes

cdef double MICROS = 1e6
cdef double EXACT_USD = 1e9  # below, a product with MICROS is exact enough; see reference.rates
cdef int64_t UNREACHABLE = 1LL << 62  # micro-USD, beyond any price

# Number of a taxonomy in AdCOM's list -> its family, as in reference.taxonomies.
cdef uint8_t[10] FAMILIES = [0, 1, 2, 3, 4, 2, 2, 7, 8, 7]

FORMAT_DIMENSION = SB_FORMAT  # the formats of creatives, which no campaign targets

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


cdef struct Match:
    uint64_t score
    uint32_t rank
    uint32_t creative
    int deal


cdef struct Span:  # a floor for durations, both ends included
    int64_t shortest, longest  # seconds
    int64_t floor  # micro-USD, negative: it cannot be expressed in USD


cdef struct Prices:  # what a video or audio creative costs at least, by its duration
    bint limited
    int64_t per_second  # micro-USD, exactly; or what is below, in its own currency
    double amount
    PyObject *currency  # borrowed from the request
    uint32_t first_span, last_span  # of the impression's, beside each other


cdef struct Stream:  # what an impression's video or audio requires
    bint present, has_mimes, has_protocols
    int64_t shortest, longest  # seconds, -1: no limit
    bint exact  # no other durations than these of the impression's
    uint32_t first_duration, n_durations
    uint32_t protocols  # bits, those below SB_MASKED
    bint limits_media  # by any of the following
    uint32_t flags  # of a creative's, those that it must have
    bint has_delivery
    uint32_t delivery  # bits, those below SB_MASKED
    int64_t least_bitrate, most_bitrate  # kbit/s, 0: no limit
    int64_t player_w, player_h  # pixels, where there are no boxes; 0: no limit
    Prices prices


cdef struct Deal:  # its terms are among the impression's
    int64_t floor  # micro-USD, negative: it cannot be expressed in USD
    uint32_t id  # its term, or NO_TERM
    uint32_t seats, n_seats, advertisers, n_advertisers  # terms
    bint has_seats, has_advertisers
    bint guaranteed
    Prices prices


cdef struct Offer:  # a deal that some campaign targets
    uint32_t value, position


# Facts of the request, the same for base and overlay.
cdef struct Asker:
    uint64_t auction
    int64_t now_ms
    bint has_wseat, has_languages, has_bcat, has_acat, located, recognised
    bint asks_dsa, needs_dsa  # what the campaign declares, or nothing but campaigns that do
    uint32_t renders  # flags of such a campaign
    uint32_t family  # the taxonomy of its categories (reference.taxonomies), 0: an unknown one
    double lat, lon  # degrees


# What the impression requires, the same for base and overlay.
cdef struct Asked:
    int64_t floor
    bint secure, private, native
    bint has_mimes  # of the banner
    uint32_t types  # bits of a banner's types that are blocked
    uint32_t native_kinds  # of assets that the native request requires
    Stream video, audio
    uint32_t attributes[SB_NATIVE + 1]  # by medium: bits of what is blocked
    uint32_t apis[SB_NATIVE + 1]  # by medium: bits of what there is
    uint64_t *sizes  # w << 24 | h
    uint32_t n_sizes
    uint32_t *durations  # seconds, of each medium rising
    uint32_t n_durations
    Deal *deals
    uint32_t n_deals
    bint deals_are_timed  # some deal has prices by duration
    Span *spans
    uint32_t n_spans


cdef int by_value(const void *a, const void *b) noexcept nogil:
    cdef uint32_t x = (<const Offer *>a).value, y = (<const Offer *>b).value
    return <int>(x > y) - <int>(x < y)


# Memory that the queries of one index use in turns.
cdef struct Workspace:
    sb_term *terms
    uint32_t *values  # of the terms
    uint32_t *limits
    sb_cursor *fresh  # the cursors at the first block
    sb_cursor *cursors
    Match *matches
    uint64_t *sizes
    uint32_t *durations
    Deal *deals
    Offer *offers
    Span *spans
    uint32_t terms_capacity, values_capacity, limits_capacity, fresh_capacity, cursors_capacity
    uint32_t durations_capacity, matches_capacity, sizes_capacity, deals_capacity, offers_capacity
    uint32_t spans_capacity
    # What narrows the blocks, the request's part first, then the impression's: rows (that of the
    # active campaigns first), groups whose cursors are all rows, other groups.
    const uint64_t *rows[MAX_ROWS]
    uint8_t row_dimensions[MAX_ROWS]
    sb_group flats[SB_DIMENSIONS]
    sb_group groups[SB_DIMENSIONS]
    char digits[256]


cdef void *grow(void *block, uint32_t *capacity, uint32_t needed, size_t size) except NULL:
    """Grow a block so that it has space for `needed` items of `size` bytes."""
    cdef uint32_t wanted = capacity[0] if capacity[0] else 32
    cdef void *moved = block
    while wanted < needed:
        wanted *= 2
    if wanted != capacity[0]:
        moved = PyMem_Realloc(block, wanted * size)
        if moved is NULL:
            raise MemoryError
        capacity[0] = wanted
    return moved


cdef void release(Workspace *workspace) noexcept:
    if workspace is not NULL:
        PyMem_Free(workspace.terms)
        PyMem_Free(workspace.values)
        PyMem_Free(workspace.limits)
        PyMem_Free(workspace.fresh)
        PyMem_Free(workspace.cursors)
        PyMem_Free(workspace.matches)
        PyMem_Free(workspace.sizes)
        PyMem_Free(workspace.durations)
        PyMem_Free(workspace.spans)
        PyMem_Free(workspace.deals)
        PyMem_Free(workspace.offers)
        PyMem_Free(workspace)


# -- structs ---------------------------------------------------------------------------------

# The structs and fields that are read. An enumerator is the struct's class name in upper case, then
# the field's name in OpenRTB. `Reader` derives the offsets from these names, so there is no second
# list that could disagree with them.
cpdef enum _Struct:
    BIDREQUEST, IMP, BANNER, FORMAT, VIDEO, AUDIO, NATIVE, PMP, DEAL, SITE, APP, DOOH, PUBLISHER, DEVICE
    GEO, USER, DATA, SEGMENT, REGS, REGSEXT, DSA, DURFLOORS
    N_STRUCTS

cpdef enum _Field:
    BIDREQUEST_ID, BIDREQUEST_SITE, BIDREQUEST_APP, BIDREQUEST_DOOH, BIDREQUEST_DEVICE
    BIDREQUEST_USER, BIDREQUEST_REGS, BIDREQUEST_BCAT, BIDREQUEST_ACAT, BIDREQUEST_CATTAX, BIDREQUEST_BADV, BIDREQUEST_BAPP
    BIDREQUEST_BSEAT, BIDREQUEST_WSEAT, BIDREQUEST_WLANG, BIDREQUEST_WLANGB
    IMP_BANNER, IMP_VIDEO, IMP_AUDIO, IMP_NATIVE, IMP_PMP, IMP_BIDFLOOR, IMP_BIDFLOORCUR, IMP_SECURE
    IMP_RWDD, IMP_INSTL
    BANNER_W, BANNER_H, BANNER_FORMAT, BANNER_BATTR, BANNER_POS
    BANNER_BTYPE, BANNER_MIMES, BANNER_API
    FORMAT_W, FORMAT_H
    VIDEO_MIMES, VIDEO_MINDURATION, VIDEO_MAXDURATION, VIDEO_RQDDURS, VIDEO_PODDUR
    VIDEO_PROTOCOLS, VIDEO_PROTOCOL, VIDEO_BATTR
    VIDEO_LINEARITY, VIDEO_SKIP, VIDEO_MINBITRATE, VIDEO_MAXBITRATE, VIDEO_DELIVERY
    VIDEO_BOXINGALLOWED, VIDEO_W, VIDEO_H
    VIDEO_POS, VIDEO_PLCMT, VIDEO_PLACEMENT, VIDEO_API
    VIDEO_MINCPMPERSEC, VIDEO_DURFLOORS
    AUDIO_MIMES, AUDIO_MINDURATION, AUDIO_MAXDURATION, AUDIO_RQDDURS, AUDIO_PODDUR
    AUDIO_PROTOCOLS, AUDIO_BATTR
    AUDIO_MINBITRATE, AUDIO_MAXBITRATE, AUDIO_DELIVERY
    AUDIO_API, AUDIO_MINCPMPERSEC, AUDIO_DURFLOORS
    NATIVE_PLCMTTYPE, NATIVE_BATTR, NATIVE_API
    PMP_PRIVATE_AUCTION, PMP_DEALS
    DEAL_ID, DEAL_BIDFLOOR, DEAL_BIDFLOORCUR, DEAL_WSEAT, DEAL_WADOMAIN
    DEAL_GUAR, DEAL_MINCPMPERSEC, DEAL_DURFLOORS
    DURFLOORS_MINDUR, DURFLOORS_MAXDUR, DURFLOORS_BIDFLOOR
    SITE_DOMAIN, SITE_PAGE, SITE_CAT, SITE_SECTIONCAT, SITE_PAGECAT, SITE_PUBLISHER
    APP_BUNDLE, APP_CAT, APP_SECTIONCAT, APP_PAGECAT, APP_PUBLISHER
    DOOH_PUBLISHER
    PUBLISHER_ID
    DEVICE_UA, DEVICE_SUA, DEVICE_IP, DEVICE_IPV6, DEVICE_GEO, DEVICE_DEVICETYPE
    DEVICE_CONNECTIONTYPE
    DEVICE_OS, DEVICE_CARRIER, DEVICE_LANGUAGE, DEVICE_LANGB
    GEO_COUNTRY, GEO_REGION, GEO_CITY, GEO_ZIP, GEO_LAT, GEO_LON
    USER_DATA, USER_GEO
    DATA_SEGMENT
    SEGMENT_ID
    REGS_COPPA, REGS_GPC, REGS_GDPR, REGS_US_PRIVACY, REGS_GPP, REGS_GPP_SID, REGS_EXT
    REGSEXT_COPPA, REGSEXT_GPC, REGSEXT_GDPR, REGSEXT_US_PRIVACY, REGSEXT_GPP, REGSEXT_GPP_SID
    REGS_DSA, REGSEXT_DSA, DSA_DSAREQUIRED, DSA_PUBRENDER
    N_FIELDS


cdef void read_media(Stream *stream, object least, object most, object methods) noexcept:
    """Bit rates and delivery methods; a method that is not known is one that no creative has."""
    cdef int64_t number
    stream.least_bitrate = positive(least)
    stream.most_bitrate = positive(most)
    if filled(methods):
        for item in <list>methods:
            number = positive(item)
            if number:
                stream.has_delivery = True
                if number < SB_MASKED:
                    stream.delivery |= <uint32_t>1 << number
    if stream.has_delivery or stream.least_bitrate or stream.most_bitrate:
        stream.limits_media = True


cdef class Reader:
    """Reads the fields of decoded requests; exchange.lookups.Lookups has the callbacks.

    structs: the classes of the decoded request, among them those of `_Struct` with the fields of
    `_Field`. Their fields are read at their offsets in memory, so each object's class is checked
    first. The memos (exchange.lookups.Memo) have countries by code, systems by spelling, (system,
    browser) by user agent, and whether a US Privacy string opts out. in_usd: bids are in USD.
    Raises ValueError or TypeError where a struct or a field is missing.
    """

    cdef tuple structs
    cdef object countries
    cdef object systems
    cdef object agents
    cdef object opt_outs
    cdef bint in_usd
    cdef Py_ssize_t offsets[N_FIELDS]
    cdef PyTypeObject *types[N_STRUCTS]

    def __init__(self, tuple structs, object countries, object systems, object agents,
                 object opt_outs, bint in_usd=True):
        classes = {struct.__name__.upper(): struct for struct in structs}
        names = [number.name for number in _Struct if number != N_STRUCTS]
        if not set(names) <= set(classes):
            raise ValueError(f"not the structs of a request, which are {', '.join(names)}")
        self.countries = countries
        self.systems = systems
        self.agents = agents
        self.opt_outs = opt_outs
        self.in_usd = in_usd
        for number in _Struct:
            if number != N_STRUCTS:
                self.types[<int>number] = <PyTypeObject *>classes[number.name]
        for field in _Field:
            if field != N_FIELDS:
                owner, _, name = field.name.lower().partition("_")
                struct = classes[owner.upper()]
                self.offsets[<int>field] = sb_member(struct.__dict__.get(name))
                if self.offsets[<int>field] < 0:
                    raise TypeError(f"{struct.__name__} has no member {name} to read")
        self.structs = tuple(classes[name] for name in names)

    @cython.final
    cdef inline object get(self, object owner, int field):
        return <object>sb_field(<PyObject *>owner, self.offsets[field])

    @cython.final
    cdef inline object child(self, object owner, int field, int struct):
        """A struct's field that is a struct, or None; also of None."""
        return None if owner is None else self.checked(self.get(owner, field), struct)

    @cython.final
    cdef inline object checked(self, object value, int struct):
        if value is not None and not Py_IS_TYPE(value, self.types[struct]):
            raise TypeError(f"{type(value).__name__} instead of {self.structs[struct].__name__}")
        return value


cdef inline bint filled(object items) noexcept:
    """Return whether this is a list with any item."""
    return PyList_CheckExact(items) and PyList_GET_SIZE(items) != 0


cdef inline object first(object items, Py_ssize_t most):
    """Return the first items of a list; none of what is no list."""
    if not PyList_CheckExact(items):
        return ()
    return items if PyList_GET_SIZE(items) <= most else (<list>items)[:most]


cdef inline bint is_too_long(object text) noexcept:
    """Return whether a text is longer than any that counts, as far as its characters tell."""
    return PyUnicode_Check(text) and PyUnicode_GET_LENGTH(text) > SB_KEY_MAX


cdef inline bint integer(object number, int64_t *result) noexcept:
    """Convert a non-negative integer of 63 bits; anything else counts as absent."""
    cdef int overflow = 0
    if not PyLong_Check(number):
        return False
    result[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and result[0] >= 0


cdef inline bint is_one(object flag) noexcept:
    cdef int64_t number
    return integer(flag, &number) and number == 1


cdef uint32_t bits(object numbers) noexcept:
    """Bits of the numbers below SB_MASKED; what is beyond has no bit."""
    cdef uint32_t mask = 0
    cdef int64_t number
    if filled(numbers):
        for item in <list>numbers:
            if item is not None and integer(item, &number) and number < SB_MASKED:
                mask |= <uint32_t>1 << number
    return mask


cdef inline bint is_zero(object flag) noexcept:
    cdef int64_t number
    return integer(flag, &number) and number == 0


cdef inline int64_t positive(object number) noexcept:
    """Convert a positive integer; 0 where it is absent, or out of range."""
    cdef int64_t value
    return value if integer(number, &value) else 0


cdef inline bint is_given(object text) noexcept:
    """Return whether this is neither None nor an empty text."""
    if PyUnicode_CheckExact(text):
        return PyUnicode_GET_LENGTH(text) != 0
    return text is not None


cdef inline bint is_plain_host(str text) noexcept:
    """Return whether this is a bare ASCII host name: labels of letters, digits, - and _."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text), i
    cdef const char *raw
    cdef char character, before = c'.'
    if not PyUnicode_IS_COMPACT_ASCII(text) or size > SB_KEY_MAX:
        return False
    raw = <const char *>PyUnicode_DATA(text)
    for i in range(size):
        character = raw[i]
        if character == c'.':
            if before == c'.':
                return False
        elif not (c'a' <= character <= c'z' or c'A' <= character <= c'Z'
                  or c'0' <= character <= c'9' or character == c'-' or character == c'_'):
            return False
        before = character
    return before != c'.'


cdef inline object text_of(object text):
    return text if PyUnicode_CheckExact(text) else str(text)


cdef inline object recall(object memo, object text):
    """Return a memo's entry for a text; a missing one is computed (exchange.lookups.Memo)."""
    cdef PyObject *value = PyDict_GetItem(memo, text)
    return <object>value if value is not NULL else memo[text]


# -- media of video and audio ----------------------------------------------------------------

cdef bint fits_media(const sb_creative *creative, const Stream *stream) noexcept:
    """Check what the creative must say of its media: what it does not say does not fit."""
    if stream.flags & ~<uint32_t>creative.flags:
        return False
    if stream.has_delivery and not stream.delivery & creative.delivery:
        return False
    if creative.bitrate < stream.least_bitrate:
        return False
    if stream.most_bitrate and not 0 < creative.bitrate <= stream.most_bitrate:
        return False
    return fits_player(creative.w, creative.h, stream)


cdef inline bint fits_player(int64_t w, int64_t h, const Stream *stream) noexcept:
    """Media are no larger, and of the player's aspect ratio but for less than a pixel, since
    their sides are whole pixels.
    """
    cdef int64_t excess, most
    if stream.player_w and not 0 < w <= stream.player_w:
        return False
    if stream.player_h and not 0 < h <= stream.player_h:
        return False
    if not (stream.player_w and stream.player_h):
        return True
    excess = w * stream.player_h - h * stream.player_w
    most = max(stream.player_w, stream.player_h)
    return -most < excess < most


# -- the index -------------------------------------------------------------------------------

cdef void hide(const sb_header *base, const sb_header *over, uint64_t *shown,
               uint64_t *active) noexcept nogil:
    """Clear the bits of the campaigns whose ids the overlay has, in two rows of the base."""
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
cdef class Index:
    """An index in memory (a read-only buffer), and this process's view of it.

    An overlay (another buffer with an index) hides the campaigns whose ids it has; the ranks of its
    own campaigns follow the base's. Raises ValueError if a buffer is not an index of this version.
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
    cdef uint32_t families  # bits: taxonomies of categories, overlay included
    cdef uint32_t used  # bits: dimensions in which any campaign has an entry, overlay included
    cdef uint8_t order[SB_DIMENSIONS]  # those of this index, what refuses most campaigns first
    cdef uint32_t n_order
    cdef Index over  # the overlay, or None
    cdef uint64_t *shown  # a row: campaigns that the overlay does not hide; NULL: all
    cdef Workspace *spare  # or NULL

    def __cinit__(self, object source, object overlay=None):
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
        self.families = self.head.families
        cdef const sb_header *hidden
        cdef size_t row = self.head.blocks * SB_WORDS * sizeof(uint64_t)
        self.active = <uint64_t *>PyMem_Malloc(max(row, 1))
        if self.active is NULL:
            raise MemoryError
        memcpy(self.active, self.base + self.head.active, row)
        for i in range(SB_DIMENSIONS):
            if self.dimensions[i].includes or self.dimensions[i].excludes:
                self.used |= 1u << i
                self.put_in_order(i)
        if overlay is not None:
            self.over = Index(overlay)
            self.used |= self.over.used
            self.families |= self.over.families
            self.shown = <uint64_t *>PyMem_Malloc(max(row, 1))
            if self.shown is NULL:
                raise MemoryError
            memset(self.shown, 0xff, row)
            hidden = self.over.head
            with nogil:  # for an overlay of many campaigns it takes milliseconds
                hide(self.head, hidden, self.shown, self.active)

    def __dealloc__(self):
        release(self.spare)
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

    def __len__(self):
        """The number of ranks, including those of hidden campaigns."""
        return self.head.campaigns + (0 if self.over is None else self.over.head.campaigns)

    def targets(self, uint32_t dimension):
        """Return whether any campaign has an entry in this dimension (a number of `DIMENSIONS`)."""
        if dimension >= SB_DIMENSIONS:
            raise ValueError("no such dimension")
        return (self.used >> dimension & 1) != 0

    @property
    def has_caps(self):
        """Whether any campaign bids only for a recognised user."""
        return self.head.capped != 0 or self.over is not None and self.over.has_caps

    def rank(self, str id):
        """Return the rank of a campaign, or None."""
        cdef const sb_id *entry
        encoded = id.encode()
        if self.over is not None:
            entry = sb_find_id(self.over.head, <const char *>encoded, len(encoded))
            if entry is not NULL:
                return None if entry.rank == SB_GONE else self.head.campaigns + entry.rank
        entry = sb_find_id(self.head, <const char *>encoded, len(encoded))
        return None if entry is NULL or entry.rank == SB_GONE else entry.rank

    cdef Index layer(self, uint32_t *rank):
        """Return the index that has the campaign, and set `rank` to its rank there."""
        if rank[0] < self.head.campaigns:
            return self
        rank[0] -= self.head.campaigns
        if self.over is None or rank[0] >= self.over.head.campaigns:
            raise IndexError("no such rank")
        return self.over

    def payload(self, uint32_t rank):
        """Return the payload stored with the campaign."""
        cdef Index layer = self.layer(&rank)
        return PyBytes_FromStringAndSize(
            layer.base + layer.details[rank].payload, layer.details[rank].payload_size)

    def price(self, uint32_t rank):
        """Return the campaign's CPM in micro-USD."""
        cdef Index layer = self.layer(&rank)
        return layer.campaigns[rank].price

    def advertiser(self, uint32_t rank):
        """Return the campaign's advertiser domain, in lower case."""
        cdef Index layer = self.layer(&rank)
        cdef const char *key = sb_key(layer.head, layer.campaigns[rank].advertiser)
        cdef uint32_t size
        memcpy(&size, key, sizeof(size))
        return PyUnicode_DecodeUTF8(key + sizeof(size), size & 0xffffff, NULL)

    def set_active(self, uint32_t rank, bint active):
        """Let the campaign bid or not, in this process; a hidden one never does."""
        cdef Index layer = self.layer(&rank)
        cdef uint64_t bit = <uint64_t>1 << (rank & 63)
        if not active:
            layer.active[rank >> 6] &= ~bit
        elif layer.shown is NULL or layer.shown[rank >> 6] & bit:
            layer.active[rank >> 6] |= bit

    def query(self, Reader reader not None, object request, str ssp not None,
              str canonical not None, int64_t now_ms, double left_s=INFINITY,
              double processor_s=INFINITY):
        """Start the search for a decoded request to an SSP, at a time (UTC epoch ms).

        It may go on for `left_s`, and for `processor_s` of this thread's processor time.
        """
        cdef Query query = Query.__new__(Query, self)
        if reader.structs is None:
            raise ValueError("the reader knows no structs")
        query.reader = reader
        query.request = reader.checked(request, BIDREQUEST)
        query.ssp = ssp
        query.canonical = canonical
        query.asker.now_ms = now_ms
        if self.over is not None:
            query.over = Query.__new__(Query, self.over)
            query.over.allowance = query.allowance
        if left_s != INFINITY or processor_s != INFINITY:
            sb_allow(query.allowance, left_s, processor_s)
        query.read_request()
        query.take_request(query)
        if query.over is not None:
            query.over.take_request(query)
        return query

    cdef inline const sb_extra *extra(self, uint32_t rank) noexcept:
        """Of a campaign whose flags have any of SB_EXTRA."""
        return (<const sb_extra *>(self.base + self.head.extras)) + self.details[rank].extra


# -- a query ---------------------------------------------------------------------------------

cdef enum:  # parts of a request's terms: the dimensions, then
    BLOCKED = SB_DIMENSIONS  # categories, advertisers, apps and seats that may not bid
    SEATS                    # seats that alone may bid
    LANGUAGES                # of creatives that alone may bid
    CATEGORIES               # that alone may bid
    MARKER                   # of categories that are mapped to the request's taxonomy
    ASKED                    # the impression's blocked attributes, mimes and protocols
    CONDITIONS               # seats and advertisers that its deals admit
    RIVALS                   # advertisers of the pod's other impressions
    N_PARTS


@cython.no_gc  # it is part of no cycle
@cython.final
@cython.freelist(8)
cdef class Query:
    """The search for one request: `impression`, then `next` until it gives None."""

    cdef Index index
    cdef Query over  # the search of the overlay, or None
    cdef Reader reader
    cdef object request
    cdef object imp
    cdef object native  # what its native request asks for, or None
    cdef str ssp
    cdef str canonical
    # Texts that terms point into, apart from the request's own.
    cdef object country_code, system, browser
    cdef list kept
    cdef char *ink  # where the digits of the next integer go
    cdef uint32_t ink_left
    cdef readonly object user  # recognised, for frequency caps; or None
    cdef Asker asker
    cdef Asked asked
    # The terms, the request's or then the impression's; those of a part stand together.
    cdef uint32_t n_terms
    cdef uint32_t begins[N_PARTS]
    cdef uint32_t ends[N_PARTS]
    cdef char region_key[64]
    # What narrows the blocks, in the workspace.
    cdef Workspace *workspace
    cdef uint32_t n_rows, n_flats, n_groups, n_cursors
    cdef uint32_t request_rows, request_flats, request_groups, request_cursors
    cdef bint nobody, request_nobody  # no campaign can answer
    cdef list made  # rows of this query alone
    cdef Py_ssize_t request_made
    # The limits.
    cdef sb_set blocked, seats, languages, allowed, wanted, rivals
    cdef uint32_t marker
    cdef uint32_t n_limits, n_blocked, n_seats, n_languages, n_allowed, n_offers
    cdef int64_t lowest  # no campaign below this price can answer
    cdef int64_t undealt  # nor one without a deal below this price
    cdef bint guarantees  # a deal on offer is guaranteed: its campaigns come before any price
    cdef bint first_look  # the walk is for them
    cdef sb_group deals
    # How long it may take: a query's own, and that of the overlay's query too.
    cdef sb_allowance own_allowance
    cdef sb_allowance *allowance
    cdef readonly uint32_t undecided  # impressions for which the time was not enough
    # The walk.
    cdef uint64_t bits[SB_WORDS]
    cdef uint32_t block, word, block_steps
    cdef bint finished
    cdef bint halted  # its time was over before there was a match
    cdef uint32_t n_candidates, n_verified  # looked at so far
    cdef uint32_t n_matches
    cdef int64_t match_price
    cdef uint32_t chosen_creative
    cdef int chosen_deal

    def __cinit__(self, Index index):
        self.index = index
        self.workspace = index.spare
        index.spare = NULL
        self.finished = True
        self.allowance = &self.own_allowance
        sb_allow_all(self.allowance)
        if self.workspace is NULL:
            self.workspace = <Workspace *>PyMem_Malloc(sizeof(Workspace))
            if self.workspace is NULL:
                raise MemoryError
            memset(self.workspace, 0, sizeof(Workspace))

    def __dealloc__(self):
        if self.index is not None and self.index.spare is NULL:
            self.index.spare = self.workspace
        else:
            release(self.workspace)

    # -- reading: the request ----------------------------------------------------------------

    cdef int read_request(self) except -1:
        cdef Reader reader = self.reader
        cdef uint32_t used = self.index.used
        cdef uint32_t dimension
        cdef bint open
        request = self.request
        device = reader.child(request, BIDREQUEST_DEVICE, DEVICE)
        user = reader.child(request, BIDREQUEST_USER, USER)
        site = reader.child(request, BIDREQUEST_SITE, SITE)
        app = reader.child(request, BIDREQUEST_APP, APP)
        dooh = reader.child(request, BIDREQUEST_DOOH, DOOH)
        self.clear_terms()
        self.read_auction(reader.get(request, BIDREQUEST_ID))
        if used >> SB_SSP & 1:
            self.begin(SB_SSP)
            self.text(SB_SSP, self.ssp, False)
            if self.canonical != self.ssp:
                self.text(SB_SSP, self.canonical, False)
            self.end(SB_SSP)
        geo = self.read_place(device, user)
        self.read_user_data(geo, user)
        if device is not None:
            self.read_device(device)
        self.begin(SB_INVENTORY)
        if used >> SB_INVENTORY & 1:
            if site is not None:
                self.text(SB_INVENTORY, "site", False)
            if app is not None:
                self.text(SB_INVENTORY, "app", False)
            if dooh is not None:
                self.text(SB_INVENTORY, "dooh", False)
        self.end(SB_INVENTORY)
        self.read_publication(site, app, dooh)
        self.begin(SB_HOUR)
        if used >> SB_HOUR & 1:
            self.push_number(
                SB_HOUR, (self.asker.now_ms // HOUR_MS + EPOCH_HOUR) % WEEK_HOURS)
        self.end(SB_HOUR)
        self.read_categories_of_ads(request)
        self.begin(BLOCKED)
        self.asker.has_bcat = self.ad_categories(reader.get(request, BIDREQUEST_BCAT))
        self.texts(SB_AD_DOMAIN, reader.get(request, BIDREQUEST_BADV), True)
        self.texts(SB_AD_BUNDLE, reader.get(request, BIDREQUEST_BAPP), False)
        self.texts(SB_SEAT, reader.get(request, BIDREQUEST_BSEAT), False)
        self.end(BLOCKED)
        self.begin(SEATS)
        self.asker.has_wseat = self.texts(SB_SEAT, reader.get(request, BIDREQUEST_WSEAT), False)
        self.end(SEATS)
        self.begin(LANGUAGES)
        self.asker.has_languages = self.texts(
            SB_AD_LANGUAGE, reader.get(request, BIDREQUEST_WLANG), True)
        self.asker.has_languages |= self.texts(
            SB_AD_LANGUAGE, reader.get(request, BIDREQUEST_WLANGB), True)
        self.end(LANGUAGES)
        self.read_dsa(reader.child(request, BIDREQUEST_REGS, REGS))
        return 0

    cdef int read_dsa(self, object regs) except -1:
        """What the Digital Services Act requires of a bid, from its place of OpenRTB 2.5, too."""
        cdef Reader reader = self.reader
        cdef int64_t number
        if regs is None:
            return 0
        dsa = reader.child(regs, REGS_DSA, DSA)
        if dsa is None:
            dsa = reader.child(reader.child(regs, REGS_EXT, REGSEXT), REGSEXT_DSA, DSA)
        if dsa is None or not integer(reader.get(dsa, DSA_DSAREQUIRED), &number):
            return 0
        self.asker.asks_dsa = 1 <= number <= 3
        self.asker.needs_dsa = 2 <= number <= 3
        if integer(reader.get(dsa, DSA_PUBRENDER), &number):
            self.asker.renders = SB_RENDERS if number == 0 else SB_LEAVES if number == 2 else 0
        return 0

    cdef int read_categories_of_ads(self, object request) except -1:
        """The taxonomy, the categories that alone may bid, and what marks mapped ones."""
        cdef Reader reader = self.reader
        cdef int64_t number
        cattax = reader.get(request, BIDREQUEST_CATTAX)
        self.asker.family = 1
        if cattax is not None and integer(cattax, &number):
            self.asker.family = FAMILIES[number] if number < <int64_t>sizeof(FAMILIES) else 0
        self.begin(CATEGORIES)
        self.asker.has_acat = self.ad_categories(reader.get(request, BIDREQUEST_ACAT))
        self.end(CATEGORIES)
        self.begin(MARKER)
        if self.index.families & ~(1u << self.asker.family):
            marker = f"{self.asker.family}:"
            self.keep(marker)
            self.text(SB_AD_CATEGORY, marker, False)
        self.end(MARKER)
        return 0

    cdef bint ad_categories(self, object texts) except -1:
        """Add terms for categories in the request's taxonomy; return whether there is any."""
        cdef bint any = False
        if self.asker.family == 1:
            return self.texts(SB_AD_CATEGORY, texts, False)
        if filled(texts):
            for text in <list>texts:
                if is_given(text):
                    any = True
                    key = f"{self.asker.family}:{text}"
                    self.keep(key)
                    self.text(SB_AD_CATEGORY, key, False)
        return any

    cdef int read_auction(self, object id) except -1:
        cdef Py_ssize_t size
        cdef const char *raw = PyUnicode_AsUTF8AndSize(id, &size)
        self.asker.auction = sb_hash(0, raw, size)
        return 0

    cdef object read_place(self, object device, object user):
        """Country, region and city; the geo object that they are read from, or None."""
        cdef Reader reader = self.reader
        cdef uint32_t used = self.index.used
        geo = reader.child(device, DEVICE_GEO, GEO)
        country = self.country(geo)
        if country is None:
            named = reader.child(user, USER_GEO, GEO)
            country = self.country(named)
            if country is not None:
                geo = named
            elif device is not None and used & (1u << SB_COUNTRY | 1u << SB_REGION):
                country = (<object>reader).country_of_address(
                    reader.get(device, DEVICE_IP), reader.get(device, DEVICE_IPV6))
        self.begin(SB_COUNTRY)
        if country is not None:
            self.country_code = country
            self.text(SB_COUNTRY, country, False)
        self.end(SB_COUNTRY)
        self.begin(SB_REGION)
        if geo is not None and country is not None and used >> SB_REGION & 1:
            self.read_region(country, reader.get(geo, GEO_REGION))
        self.end(SB_REGION)
        self.begin(SB_CITY)
        if geo is not None and used >> SB_CITY & 1:
            self.text(SB_CITY, reader.get(geo, GEO_CITY), True)
        self.end(SB_CITY)
        return geo

    cdef object country(self, object geo):
        """The country (alpha-3) that a geo object names, or None."""
        if geo is None:
            return None
        code = self.reader.get(geo, GEO_COUNTRY)
        if not is_given(code):
            return None
        return recall(self.reader.countries, text_of(code))

    cdef int read_region(self, str country, object code) except -1:
        """`usa-ca`; match.vocabulary.region says what is special about it."""
        cdef Py_ssize_t size, length
        cdef const char *raw
        if not is_given(code) or is_too_long(code):
            return 0
        if PyUnicode_CheckExact(code) and PyUnicode_IS_COMPACT_ASCII(code):
            raw = <const char *>PyUnicode_DATA(code)
            size = PyUnicode_GET_LENGTH(code)
            length = PyUnicode_GET_LENGTH(country)
            if (size + length + 1 <= <Py_ssize_t>sizeof(self.region_key)
                    and memchr(raw, c'-', size) is NULL):
                memcpy(self.region_key, PyUnicode_DATA(country), length)
                self.region_key[length] = c'-'
                memcpy(self.region_key + length + 1, raw, size)
                self.push_text(SB_REGION, self.region_key, length + 1 + size, True)
                return 0
        region = (<object>self.reader).region(country, str(code))
        if region is not None:
            self.keep(region)
            self.text(SB_REGION, region, False)
        return 0

    cdef int read_user_data(self, object geo, object user) except -1:
        """Read what may be used only if the request's privacy signals allow it (contract 3)."""
        cdef Reader reader = self.reader
        cdef uint32_t used = self.index.used
        cdef double at_lat, at_lon
        postal = data = lat = lon = None
        self.begin(SB_POSTAL)
        self.end(SB_POSTAL)
        self.begin(SB_SEGMENT)
        self.end(SB_SEGMENT)
        if geo is not None:
            lat = reader.get(geo, GEO_LAT)
            lon = reader.get(geo, GEO_LON)
            if used >> SB_POSTAL & 1:
                postal = reader.get(geo, GEO_ZIP)
        if user is not None and used >> SB_SEGMENT & 1:
            data = reader.get(user, USER_DATA)
        if lat is None and postal is None and data is None and not self.index.has_caps:
            return 0
        if not self.may_use_user_data():
            return 0
        if self.index.has_caps:
            self.user = (<object>reader).person(self.request)
            self.asker.recognised = self.user is not None
        if PyFloat_CheckExact(lat) and PyFloat_CheckExact(lon):
            at_lat = PyFloat_AS_DOUBLE(lat)
            at_lon = PyFloat_AS_DOUBLE(lon)
            if -90 <= at_lat <= 90 and -180 <= at_lon <= 180:
                self.asker.located = True
                self.asker.lat = at_lat
                self.asker.lon = at_lon
        if postal is not None:
            self.begin(SB_POSTAL)
            self.text(SB_POSTAL, postal, True)
            self.end(SB_POSTAL)
        self.begin(SB_SEGMENT)
        for item in first(data, MAX_ENTRIES):
            segments = reader.get(reader.checked(item, DATA), DATA_SEGMENT)
            for segment in first(segments, MAX_ENTRIES):
                self.text(SB_SEGMENT, reader.get(
                    reader.checked(segment, SEGMENT), SEGMENT_ID), False)
        self.end(SB_SEGMENT)
        return 0

    cdef bint may_use_user_data(self) except -1:
        """What exchange.privacy says. It is asked where a consent string or a GPP string decides;
        of a US Privacy string alone the memo has what it said.
        """
        cdef Reader reader = self.reader
        regs = reader.child(self.request, BIDREQUEST_REGS, REGS)
        if regs is None:
            return True
        if (is_one(reader.get(regs, REGS_GDPR)) or filled(reader.get(regs, REGS_GPP_SID))
                or is_given(reader.get(regs, REGS_GPP))):
            return (<object>reader).may_use_user_data(self.request)
        if is_one(reader.get(regs, REGS_COPPA)) or is_one(reader.get(regs, REGS_GPC)):
            return False
        text = reader.get(regs, REGS_US_PRIVACY)
        if is_given(text) and recall(reader.opt_outs, text):
            return False
        ext = reader.child(regs, REGS_EXT, REGSEXT)
        if ext is None:
            return True
        if (is_one(reader.get(ext, REGSEXT_GDPR)) or filled(reader.get(ext, REGSEXT_GPP_SID))
                or is_given(reader.get(ext, REGSEXT_GPP))):
            return (<object>reader).may_use_user_data(self.request)
        if is_one(reader.get(ext, REGSEXT_COPPA)) or is_one(reader.get(ext, REGSEXT_GPC)):
            return False
        text = reader.get(ext, REGSEXT_US_PRIVACY)
        return not is_given(text) or not recall(reader.opt_outs, text)

    cdef int read_device(self, object device) except -1:
        cdef Reader reader = self.reader
        cdef uint32_t used = self.index.used
        os = browser = None
        if used >> SB_DEVICE_TYPE & 1:
            self.begin(SB_DEVICE_TYPE)
            self.number(SB_DEVICE_TYPE, reader.get(device, DEVICE_DEVICETYPE))
            self.end(SB_DEVICE_TYPE)
        if used >> SB_CONNECTION & 1:
            self.begin(SB_CONNECTION)
            self.number(SB_CONNECTION, reader.get(device, DEVICE_CONNECTIONTYPE))
            self.end(SB_CONNECTION)
        if used & (1u << SB_OS | 1u << SB_BROWSER):
            hints = reader.get(device, DEVICE_SUA)
            if hints is not None:
                os, browser = (<object>reader).hinted(hints)
            if os is None and used >> SB_OS & 1:
                os = reader.get(device, DEVICE_OS)
                os = recall(reader.systems, text_of(os)) if is_given(os) else None
            agent = reader.get(device, DEVICE_UA)
            if is_given(agent) and (os is None or browser is None and used >> SB_BROWSER & 1):
                system, family = recall(reader.agents, text_of(agent))
                os = os or system
                browser = browser or family
            self.begin(SB_OS)
            if os is not None and used >> SB_OS & 1:
                self.system = os
                self.text(SB_OS, os, False)
            self.end(SB_OS)
            self.begin(SB_BROWSER)
            if browser is not None:
                self.browser = browser
                self.text(SB_BROWSER, browser, False)
            self.end(SB_BROWSER)
        if used >> SB_CARRIER & 1:
            self.begin(SB_CARRIER)
            self.text(SB_CARRIER, reader.get(device, DEVICE_CARRIER), True)
            self.end(SB_CARRIER)
        if used >> SB_LANGUAGE & 1:
            self.begin(SB_LANGUAGE)
            language = reader.get(device, DEVICE_LANGUAGE)
            if not language or is_too_long(language):
                language = reader.get(device, DEVICE_LANGB)
            self.read_language(language)
            self.end(SB_LANGUAGE)
        return 0

    cdef int read_language(self, object language) except -1:
        """The primary subtag, as match.vocabulary.primary_subtag has it."""
        cdef Py_ssize_t size, length = 0
        cdef const char *raw
        if not PyUnicode_Check(language) or is_too_long(language):
            return 0
        raw = self.encoded(language, &size)
        while length < size and (c'a' <= raw[length] <= c'z' or c'A' <= raw[length] <= c'Z'):
            length += 1
        if 2 <= length <= 8 and (length == size or raw[length] == c'-' or raw[length] == c'_'):
            self.push_text(SB_LANGUAGE, raw, length, True)
        return 0

    cdef int read_publication(self, object site, object app, object dooh) except -1:
        """Domain, bundle, publishers and categories."""
        cdef Reader reader = self.reader
        cdef uint32_t used = self.index.used
        self.begin(SB_DOMAIN)
        if site is not None and used >> SB_DOMAIN & 1:
            if not self.read_domain(reader.get(site, SITE_DOMAIN)):
                self.read_domain(reader.get(site, SITE_PAGE))
        self.end(SB_DOMAIN)
        self.begin(SB_BUNDLE)
        if app is not None and used >> SB_BUNDLE & 1:
            self.text(SB_BUNDLE, reader.get(app, APP_BUNDLE), False)
        self.end(SB_BUNDLE)
        self.begin(SB_PUBLISHER)
        if used >> SB_PUBLISHER & 1:
            self.read_publisher(site, SITE_PUBLISHER)
            self.read_publisher(app, APP_PUBLISHER)
            self.read_publisher(dooh, DOOH_PUBLISHER)
        self.end(SB_PUBLISHER)
        self.begin(SB_CATEGORY)
        if used >> SB_CATEGORY & 1:
            if site is not None:
                self.read_categories(reader.get(site, SITE_CAT))
                self.read_categories(reader.get(site, SITE_SECTIONCAT))
                self.read_categories(reader.get(site, SITE_PAGECAT))
            if app is not None:
                self.read_categories(reader.get(app, APP_CAT))
                self.read_categories(reader.get(app, APP_SECTIONCAT))
                self.read_categories(reader.get(app, APP_PAGECAT))
        self.end(SB_CATEGORY)
        return 0

    cdef bint read_domain(self, object url) except -1:
        """The domain and its parents; whether there is one. What is no bare host name in ASCII is
        left to match.vocabulary.host.
        """
        cdef Py_ssize_t size, i
        cdef const char *raw
        if not is_given(url):
            return False
        if not (PyUnicode_CheckExact(url) and is_plain_host(url)):
            url = (<object>self.reader).host(str(url))
            if url is None or is_too_long(url):
                return False
            self.keep(url)
        raw = self.encoded(url, &size)
        if size > SB_KEY_MAX:
            return False
        for i in range(size):
            if i == 0 or raw[i - 1] == c'.':
                self.push_text(SB_DOMAIN, raw + i, size - i, True)
        return True

    cdef int read_publisher(self, object owner, int field) except -1:
        publisher = self.reader.child(owner, field, PUBLISHER)
        if publisher is not None:
            self.text(SB_PUBLISHER, self.reader.get(publisher, PUBLISHER_ID), False)
        return 0

    cdef int read_categories(self, object categories) except -1:
        """Each category and its IAB parent."""
        cdef Py_ssize_t size
        cdef const char *raw
        cdef const char *dash
        cdef uint32_t count = 0
        if not filled(categories):
            return 0
        for category in <list>categories:
            if not is_given(category):
                continue
            count += 1
            if count > MAX_ENTRIES:
                break
            self.text(SB_CATEGORY, category, False)
            if PyUnicode_Check(category) and not is_too_long(category):
                raw = self.encoded(category, &size)
                dash = <const char *>memchr(raw, c'-', size)
                if dash is not NULL and size <= SB_KEY_MAX:
                    self.push_text(SB_CATEGORY, raw, dash - raw, False)
        return 0

    # -- reading: the impression -------------------------------------------------------------

    cdef bint read_impression(self, object imp) except -1:
        """False where its floor cannot be expressed in USD."""
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        memset(asked, 0, sizeof(asked[0]))
        asked.floor = self.floor(reader.get(imp, IMP_BIDFLOOR), reader.get(imp, IMP_BIDFLOORCUR))
        if asked.floor < 0:
            return False
        banner = reader.child(imp, IMP_BANNER, BANNER)
        video = reader.child(imp, IMP_VIDEO, VIDEO)
        audio = reader.child(imp, IMP_AUDIO, AUDIO)
        native = reader.child(imp, IMP_NATIVE, NATIVE)
        pmp = reader.child(imp, IMP_PMP, PMP)
        asked.secure = is_one(reader.get(imp, IMP_SECURE))
        self.native = None
        if native is not None:
            self.native = (<object>reader).native_request(native)
            asked.native = self.native is not None
            asked.native_kinds = 0 if self.native is None else self.native.required_kinds
        self.clear_terms()
        self.begin(SB_FORMAT)
        if banner is not None:
            self.read_sizes(banner)
        asked.video.present = video is not None
        asked.audio.present = audio is not None
        if asked.video.present:
            self.push_number(SB_FORMAT, <uint64_t>SB_VIDEO << 56)
        if asked.audio.present:
            self.push_number(SB_FORMAT, <uint64_t>SB_AUDIO << 56)
        if asked.native:
            self.push_number(SB_FORMAT, <uint64_t>SB_NATIVE << 56)
        self.end(SB_FORMAT)
        self.begin(SB_POSITION)
        if banner is not None:
            self.number(SB_POSITION, reader.get(banner, BANNER_POS))
        if video is not None:
            self.number(SB_POSITION, reader.get(video, VIDEO_POS))
        self.end(SB_POSITION)
        if self.index.used & (1u << SB_PLACEMENT | 1u << SB_REWARDED | 1u << SB_INTERSTITIAL):
            self.read_placement(imp, video, native)
        self.begin(ASKED)
        if banner is not None:
            asked.attributes[SB_BANNER] = self.masked(
                SB_BANNER_ATTRIBUTE, reader.get(banner, BANNER_BATTR), NULL)
            asked.types = bits(reader.get(banner, BANNER_BTYPE))
            asked.apis[SB_BANNER] = bits(reader.get(banner, BANNER_API))
            asked.has_mimes = self.texts(
                SB_BANNER_MIME, reader.get(banner, BANNER_MIMES), False)
        currency = reader.get(imp, IMP_BIDFLOORCUR)
        if video is not None:
            self.read_video(video)
            self.read_prices(&asked.video.prices, reader.get(video, VIDEO_MINCPMPERSEC),
                             reader.get(video, VIDEO_DURFLOORS), currency)
        if audio is not None:
            self.read_audio(audio)
            self.read_prices(&asked.audio.prices, reader.get(audio, AUDIO_MINCPMPERSEC),
                             reader.get(audio, AUDIO_DURFLOORS), currency)
        if native is not None:
            asked.attributes[SB_NATIVE] = self.masked(
                SB_NATIVE_ATTRIBUTE, reader.get(native, NATIVE_BATTR), NULL)
            asked.apis[SB_NATIVE] = bits(reader.get(native, NATIVE_API))
        self.end(ASKED)
        self.begin(SB_DEAL)
        self.end(SB_DEAL)
        if pmp is not None:
            asked.private = is_one(reader.get(pmp, PMP_PRIVATE_AUCTION))
            if self.index.used >> SB_DEAL & 1:
                self.read_deals(reader.get(pmp, PMP_DEALS))
        return True

    cdef int read_placement(self, object imp, object video, object native) except -1:
        """Where and how it is shown. Not to say means no, for a reward and an interstitial."""
        cdef Reader reader = self.reader
        cdef int64_t number
        self.begin(SB_PLACEMENT)
        if video is not None:
            placement = reader.get(video, VIDEO_PLCMT)
            if placement is None or not integer(placement, &number):
                placement = reader.get(video, VIDEO_PLACEMENT)  # as of 2.5
            self.number(SB_PLACEMENT, placement)
        if native is not None:
            placement = reader.get(native, NATIVE_PLCMTTYPE)
            if placement is not None and integer(placement, &number):
                placement = f"n{number}"
                self.keep(placement)
                self.text(SB_PLACEMENT, placement, False)
        self.end(SB_PLACEMENT)
        self.begin(SB_REWARDED)
        self.push_number(SB_REWARDED, is_one(reader.get(imp, IMP_RWDD)))
        self.end(SB_REWARDED)
        self.begin(SB_INTERSTITIAL)
        self.push_number(SB_INTERSTITIAL, is_one(reader.get(imp, IMP_INSTL)))
        self.end(SB_INTERSTITIAL)
        return 0

    cdef int read_sizes(self, object banner) except -1:
        cdef Reader reader = self.reader
        for size in first(reader.get(banner, BANNER_FORMAT), MAX_FORMATS):
            reader.checked(size, FORMAT)
            self.size(reader.get(size, FORMAT_W), reader.get(size, FORMAT_H))
        self.size(reader.get(banner, BANNER_W), reader.get(banner, BANNER_H))
        return 0

    cdef int size(self, object w, object h) except -1:
        cdef int64_t width, height
        cdef uint64_t size
        cdef Workspace *workspace = self.workspace
        if (w is None or h is None or not integer(w, &width) or not integer(h, &height)
                or not 0 < width <= MAX_SIDE or not 0 < height <= MAX_SIDE):
            return 0
        size = <uint64_t>width << 24 | <uint64_t>height
        if self.asked.n_sizes == workspace.sizes_capacity:
            workspace.sizes = <uint64_t *>grow(
                workspace.sizes, &workspace.sizes_capacity, self.asked.n_sizes + 1,
                sizeof(uint64_t))
        workspace.sizes[self.asked.n_sizes] = size
        self.asked.n_sizes += 1
        self.asked.sizes = workspace.sizes
        return self.push_number(SB_FORMAT, <uint64_t>SB_BANNER << 56 | size)

    cdef int read_video(self, object video) except -1:
        cdef Reader reader = self.reader
        cdef Stream *stream = &self.asked.video
        cdef int64_t number
        self.asked.attributes[SB_VIDEO] = self.masked(
            SB_VIDEO_ATTRIBUTE, reader.get(video, VIDEO_BATTR), NULL)
        self.asked.apis[SB_VIDEO] = bits(reader.get(video, VIDEO_API))
        stream.has_mimes = self.texts(SB_VIDEO_MIME, reader.get(video, VIDEO_MIMES), False)
        stream.protocols = self.masked(
            SB_VIDEO_PROTOCOL, reader.get(video, VIDEO_PROTOCOLS), &stream.has_protocols)
        if not stream.has_protocols:  # the scalar of OpenRTB 2.1
            protocol = reader.get(video, VIDEO_PROTOCOL)
            if protocol is not None:
                stream.protocols = self.masked(
                    SB_VIDEO_PROTOCOL, [protocol], &stream.has_protocols)
        stream.shortest = number if integer(reader.get(video, VIDEO_MINDURATION), &number) else -1
        stream.longest = number if integer(reader.get(video, VIDEO_MAXDURATION), &number) else -1
        self.read_player(stream, video)
        read_media(stream, reader.get(video, VIDEO_MINBITRATE),
                   reader.get(video, VIDEO_MAXBITRATE), reader.get(video, VIDEO_DELIVERY))
        return self.read_durations(
            stream, reader.get(video, VIDEO_RQDDURS), reader.get(video, VIDEO_PODDUR))

    cdef int read_audio(self, object audio) except -1:
        cdef Reader reader = self.reader
        cdef Stream *stream = &self.asked.audio
        cdef int64_t number
        self.asked.attributes[SB_AUDIO] = self.masked(
            SB_AUDIO_ATTRIBUTE, reader.get(audio, AUDIO_BATTR), NULL)
        self.asked.apis[SB_AUDIO] = bits(reader.get(audio, AUDIO_API))
        stream.has_mimes = self.texts(SB_AUDIO_MIME, reader.get(audio, AUDIO_MIMES), False)
        stream.protocols = self.masked(
            SB_AUDIO_PROTOCOL, reader.get(audio, AUDIO_PROTOCOLS), &stream.has_protocols)
        stream.shortest = number if integer(reader.get(audio, AUDIO_MINDURATION), &number) else -1
        stream.longest = number if integer(reader.get(audio, AUDIO_MAXDURATION), &number) else -1
        read_media(stream, reader.get(audio, AUDIO_MINBITRATE),
                   reader.get(audio, AUDIO_MAXBITRATE), reader.get(audio, AUDIO_DELIVERY))
        return self.read_durations(
            stream, reader.get(audio, AUDIO_RQDDURS), reader.get(audio, AUDIO_PODDUR))

    cdef int read_player(self, Stream *stream, object video) except -1:
        """Linearity, skipping, and the player's size where media may not be boxed."""
        cdef Reader reader = self.reader
        cdef int64_t number = positive(reader.get(video, VIDEO_LINEARITY))
        if number:
            stream.flags = (SB_LINEAR if number == 1 else SB_OVERLAY if number == 2
                            else UNKNOWN_MODE)
        if is_zero(reader.get(video, VIDEO_SKIP)):
            stream.flags |= SB_NOT_SKIPPABLE
        if is_zero(reader.get(video, VIDEO_BOXINGALLOWED)):
            number = positive(reader.get(video, VIDEO_W))
            stream.player_w = number if number <= MAX_SIDE else 0
            number = positive(reader.get(video, VIDEO_H))
            stream.player_h = number if number <= MAX_SIDE else 0
        stream.limits_media = stream.flags or stream.player_w or stream.player_h
        return 0

    cdef int read_durations(self, Stream *stream, object exact, object pod) except -1:
        """The durations that alone are accepted, and that of the whole pod."""
        cdef Workspace *workspace = self.workspace
        cdef int64_t number
        if pod is not None and integer(pod, &number) and number > 0:
            stream.longest = number if stream.longest < 0 else min(stream.longest, number)
        stream.first_duration = self.asked.n_durations
        if filled(exact):
            for item in <list>exact:
                if item is not None:
                    stream.exact = True
                    if integer(item, &number) and number < NO_DURATION:
                        if self.asked.n_durations == workspace.durations_capacity:
                            workspace.durations = <uint32_t *>grow(
                                workspace.durations, &workspace.durations_capacity,
                                self.asked.n_durations + 1, sizeof(uint32_t))
                        workspace.durations[self.asked.n_durations] = number
                        self.asked.n_durations += 1
        if stream.exact:
            stream.n_durations = sb_sort(workspace.durations + stream.first_duration,
                                         self.asked.n_durations - stream.first_duration)
            self.asked.n_durations = stream.first_duration + stream.n_durations
        self.asked.durations = workspace.durations
        return 0

    cdef int read_prices(self, Prices *prices, object per_second, object floors,
                         object currency) except -1:
        """What creatives cost at least: by the second, and in spans of durations."""
        cdef Reader reader = self.reader
        cdef Workspace *workspace = self.workspace
        cdef Span span
        cdef double given
        memset(prices, 0, sizeof(prices[0]))
        if PyFloat_CheckExact(per_second):
            given = PyFloat_AS_DOUBLE(per_second)
            if given > 0:  # NaN is not
                prices.limited = True
                prices.per_second = self.plain_floor(given, currency)
                if prices.per_second <= 0:
                    prices.amount = given
                    prices.currency = <PyObject *>currency
        prices.first_span = prices.last_span = self.asked.n_spans
        if not filled(floors):
            return 0
        for item in <list>floors:
            if reader.checked(item, DURFLOORS) is None:
                continue
            if not integer(reader.get(item, DURFLOORS_MINDUR), &span.shortest):
                span.shortest = 0
            if not integer(reader.get(item, DURFLOORS_MAXDUR), &span.longest):
                span.longest = UNREACHABLE
            amount = reader.get(item, DURFLOORS_BIDFLOOR)
            if (span.shortest > span.longest or not PyFloat_CheckExact(amount)
                    or not PyFloat_AS_DOUBLE(amount) > 0):
                continue
            span.floor = self.floor(amount, currency)
            if self.asked.n_spans == workspace.spans_capacity:
                workspace.spans = <Span *>grow(
                    workspace.spans, &workspace.spans_capacity, self.asked.n_spans + 1,
                    sizeof(Span))
            workspace.spans[self.asked.n_spans] = span
            self.asked.n_spans += 1
        self.asked.spans = workspace.spans
        prices.last_span = self.asked.n_spans
        prices.limited |= prices.last_span != prices.first_span
        return 0

    cdef int read_deals(self, object deals) except -1:
        """The deals' ids and prices, then the seats and advertisers that each of them admits."""
        cdef Reader reader = self.reader
        cdef Workspace *workspace = self.workspace
        cdef Deal *offered
        cdef uint32_t index
        if not filled(deals):
            return 0
        deals = first(deals, MAX_ENTRIES)
        self.asked.n_deals = PyList_GET_SIZE(deals)
        workspace.deals = <Deal *>grow(
            workspace.deals, &workspace.deals_capacity, self.asked.n_deals, sizeof(Deal))
        self.asked.deals = workspace.deals
        self.begin(SB_DEAL)
        for index in range(self.asked.n_deals):
            if sb_spend(self.allowance, 1):
                self.asked.n_deals = index
                break
            deal = (<list>deals)[index]
            reader.checked(deal, DEAL)
            offered = &workspace.deals[index]
            offered.floor = self.floor(
                reader.get(deal, DEAL_BIDFLOOR), reader.get(deal, DEAL_BIDFLOORCUR))
            offered.guaranteed = is_one(reader.get(deal, DEAL_GUAR))
            self.read_prices(&offered.prices, reader.get(deal, DEAL_MINCPMPERSEC),
                             reader.get(deal, DEAL_DURFLOORS), reader.get(deal, DEAL_BIDFLOORCUR))
            self.asked.deals_are_timed |= offered.prices.limited
            offered.id = self.n_terms
            self.text(SB_DEAL, reader.get(deal, DEAL_ID), False)
            if self.n_terms == offered.id:
                offered.id = NO_TERM
        self.end(SB_DEAL)
        for index in range(self.asked.n_deals):
            deal = (<list>deals)[index]
            offered = &workspace.deals[index]
            offered.seats = self.n_terms
            offered.has_seats = self.texts(SB_SEAT, reader.get(deal, DEAL_WSEAT), False)
            offered.n_seats = self.n_terms - offered.seats
            offered.advertisers = self.n_terms
            offered.has_advertisers = self.texts(
                SB_AD_DOMAIN, reader.get(deal, DEAL_WADOMAIN), True)
            offered.n_advertisers = self.n_terms - offered.advertisers
        return 0

    cdef int64_t floor(self, object amount, object currency) except? -2:
        """A floor in micro-USD, rounded up; -1 where there is no rate. What is not a plain amount
        of USD, for bids in USD, is left to exchange.lookups.floor_micros.
        """
        cdef double given
        cdef int64_t micros
        if not self.reader.in_usd:
            return min((<object>self.reader).floor_micros(amount, currency), UNREACHABLE)
        if amount is None:
            return 0
        if PyFloat_CheckExact(amount):
            given = PyFloat_AS_DOUBLE(amount)
            if not given > 0:  # NaN, too
                return 0
            micros = self.plain_floor(given, currency)
            if micros >= 0:
                return micros
        self.allowance.steps -= CALL_STEPS
        return min((<object>self.reader).floor_micros(amount, currency), UNREACHABLE)

    cdef inline int64_t plain_floor(self, double given, object currency) except? -1:
        """An amount of USD, for bids in USD, that is a whole number of micro-USD; -1 for any other."""
        cdef double micros
        if self.reader.in_usd and given < EXACT_USD and (currency is None or currency == "USD"):
            micros = rint(given * MICROS)
            if micros / MICROS == given:
                return <int64_t>micros
        return -1

    # -- reading: terms ----------------------------------------------------------------------

    cdef inline void clear_terms(self) noexcept:
        self.n_terms = 0
        self.kept = None
        self.ink = self.workspace.digits
        self.ink_left = sizeof(self.workspace.digits)

    cdef inline void begin(self, uint32_t part) noexcept:
        self.begins[part] = self.n_terms

    cdef inline void end(self, uint32_t part) noexcept:
        self.ends[part] = self.n_terms

    cdef inline sb_term *push(self) except NULL:
        cdef Workspace *workspace = self.workspace
        if self.n_terms == workspace.terms_capacity:
            workspace.terms = <sb_term *>grow(
                workspace.terms, &workspace.terms_capacity, self.n_terms + 1, sizeof(sb_term))
        self.n_terms += 1
        return workspace.terms + self.n_terms - 1

    cdef inline int push_text(self, uint32_t space, const char *text, size_t size,
                              bint fold) except -1:
        cdef sb_term *term = self.push()
        sb_text_term(term, space, text, size, fold)
        sb_expect(self.index.head, term.hash)
        return 0

    cdef inline int push_number(self, uint32_t space, uint64_t number) except -1:
        cdef sb_term *term = self.push()
        sb_number_term(term, space, number)
        sb_expect(self.index.head, term.hash)
        return 0

    cdef inline void keep(self, object text):
        """Keep a text alive that is not the request's own while terms point into it."""
        if self.kept is None:
            self.kept = []
        self.kept.append(text)

    cdef const char *encoded(self, object text, Py_ssize_t *size) except? NULL:
        """UTF-8, kept by the text; empty where there is none, as of half a surrogate pair."""
        if PyUnicode_IS_COMPACT_ASCII(text):
            size[0] = PyUnicode_GET_LENGTH(text)
            return <const char *>PyUnicode_DATA(text)
        try:
            return PyUnicode_AsUTF8AndSize(text, size)
        except UnicodeEncodeError:
            size[0] = 0
            return b""

    cdef inline int text(self, uint32_t space, object text, bint fold) except -1:
        """Add a term for a text, or an integer as text, if a campaign could have it."""
        cdef Py_ssize_t size
        cdef const char *raw
        if text is None:
            return 0
        if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
            raw = <const char *>PyUnicode_DATA(text)
            size = PyUnicode_GET_LENGTH(text)
        elif is_too_long(text):
            return 0
        else:
            raw = self.unusual(text, &fold, &size)
        if space == SB_AD_DOMAIN and size and raw[size - 1] == c'.':  # the root of the DNS
            size -= 1
        if size == 0 or size > SB_KEY_MAX:
            return 0
        return self.push_text(space, raw, size, fold)

    cdef const char *unusual(self, object text, bint *fold, Py_ssize_t *size) except? NULL:
        """The same of an integer, and of what is not ASCII."""
        cdef int64_t number
        if PyLong_CheckExact(text) and integer(text, &number):
            return self.digits(number, size)
        text = text if PyUnicode_Check(text) else str(text)
        if fold[0] and not text.isascii():
            text = text.casefold()
            fold[0] = False
        self.keep(text)
        return self.encoded(text, size)

    cdef const char *digits(self, int64_t number, Py_ssize_t *size) except NULL:
        """Write an integer as text; it may be one of thousands in a list."""
        if self.ink_left < MAX_DIGITS:
            more = PyBytes_FromStringAndSize(NULL, INK)
            self.keep(more)
            self.ink = PyBytes_AS_STRING(more)
            self.ink_left = INK
        size[0] = sb_digits(self.ink, number)
        self.ink += size[0]
        self.ink_left -= size[0]
        return self.ink - size[0]

    cdef bint texts(self, uint32_t space, object texts, bint fold) except -1:
        """Add terms for the texts of a list; return whether there is any."""
        cdef bint any = False
        if filled(texts):
            for text in <list>texts:
                if is_given(text):
                    any = True
                    self.text(space, text, fold)
        return any

    cdef inline int number(self, uint32_t space, object number) except -1:
        cdef int64_t value
        if number is not None and integer(number, &value):
            return self.push_number(space, value)
        return 0

    cdef uint32_t masked(self, uint32_t space, object numbers, bint *any) except? 0:
        """Return the bits of the numbers below SB_MASKED, and add terms for the others. `any` is set if
        there is a number.
        """
        cdef uint32_t bits = 0
        cdef int64_t number
        if filled(numbers):
            for item in <list>numbers:
                if item is not None:
                    if any is not NULL:
                        any[0] = True
                    if integer(item, &number):
                        if number < SB_MASKED:
                            bits |= 1u << number
                        else:
                            self.push_number(space, number)
        return bits

    # -- resolving and arranging: a layer takes the terms of the first one ---------------------

    cdef int resolve(self, Query source) except -1:
        cdef Workspace *workspace = self.workspace
        if source.n_terms > workspace.values_capacity:
            workspace.values = <uint32_t *>grow(
                workspace.values, &workspace.values_capacity, source.n_terms, sizeof(uint32_t))
        sb_resolve(self.index.head, source.workspace.terms, source.n_terms, workspace.values)
        return 0

    cdef int take_request(self, Query source) except -1:
        cdef uint32_t i, dimension
        if source is not self:
            self.asker = source.asker
            self.reader = source.reader
        self.resolve(source)
        self.workspace.rows[0] = self.index.active
        self.n_rows = 1
        self.n_flats = self.n_groups = self.n_cursors = 0
        self.nobody = False
        for i in range(self.index.n_order):
            dimension = self.index.order[i]
            if dimension < SB_OF_IMPRESSION:
                self.arrange(dimension, source)
        self.request_made = 0 if self.made is None else len(self.made)
        self.n_limits = 0
        self.n_blocked = self.limit(source, BLOCKED)
        self.n_seats = self.limit(source, SEATS)
        self.n_languages = self.limit(source, LANGUAGES)
        self.n_allowed = self.limit(source, CATEGORIES)
        sb_make_set(&self.blocked, self.workspace.limits, self.n_blocked)
        sb_make_set(&self.seats, self.workspace.limits + self.n_blocked, self.n_seats)
        sb_make_set(&self.languages, self.workspace.limits + self.n_blocked + self.n_seats,
                    self.n_languages)
        sb_make_set(&self.allowed, self.workspace.limits + self.n_blocked + self.n_seats
                    + self.n_languages, self.n_allowed)
        self.marker = SB_NONE
        if source.ends[MARKER] != source.begins[MARKER]:
            self.marker = self.workspace.values[source.begins[MARKER]]
        if self.asker.has_wseat and self.seats.count == 0:
            self.nobody = True
        self.request_rows = self.n_rows
        self.request_flats = self.n_flats
        self.request_groups = self.n_groups
        self.request_cursors = self.n_cursors
        self.request_nobody = self.nobody
        return 0

    cdef uint32_t limit(self, Query source, uint32_t part) except? 0xffffffff:
        """Append the values of a part to the limits; return how many."""
        cdef Workspace *workspace = self.workspace
        cdef uint32_t count = source.ends[part] - source.begins[part]
        if count == 0:
            return 0
        if self.n_limits + count > workspace.limits_capacity:
            workspace.limits = <uint32_t *>grow(
                workspace.limits, &workspace.limits_capacity, self.n_limits + count,
                sizeof(uint32_t))
        memcpy(workspace.limits + self.n_limits, workspace.values + source.begins[part],
               count * sizeof(uint32_t))
        self.n_limits += count
        return count

    cdef inline const uint64_t *row_at(self, uint64_t offset) noexcept:
        return <const uint64_t *>(self.index.base + offset)

    cdef inline void row(self, uint32_t dimension, const uint64_t *row) noexcept:
        self.workspace.rows[self.n_rows] = row
        self.workspace.row_dimensions[self.n_rows] = dimension
        self.n_rows += 1
        sb_prefetch(row)

    cdef inline int arrange(self, uint32_t dimension, Query source) except -1:
        """Narrow the campaigns down by the values of a dimension."""
        cdef const sb_dimension *open = self.index.dimensions + dimension
        cdef uint32_t *values = self.workspace.values + source.begins[dimension]
        cdef uint32_t count = source.ends[dimension] - source.begins[dimension]
        if count > 1:
            count = sb_sort(values, count)
        elif count and values[0] == SB_NONE:
            count = 0
        if count == 1 and self.index.values[values[0]].row:
            self.row(dimension, self.row_at(<uint64_t>self.index.values[values[0]].row * 64))
        elif count:
            self.group(dimension, values, count)
        elif open.includes:
            self.row(dimension, self.row_at(open.open))
            if open.includes == self.index.head.campaigns:
                self.nobody = True
        return 0

    cdef int group(self, uint32_t dimension, const uint32_t *values, uint32_t count) except -1:
        cdef const sb_dimension *open = self.index.dimensions + dimension
        cdef const sb_value *known = self.index.values
        cdef sb_group *group = &self.workspace.groups[self.n_groups]
        cdef bint flat = True
        cdef uint32_t i
        group.dimension = dimension
        group.first = self.n_cursors
        group.open = self.row_at(open.open) if open.includes else NULL
        if open.includes:
            for i in range(count):
                if known[values[i]].included.count:
                    flat &= self.cursor(&known[values[i]].included)
        group.includes = self.n_cursors - group.first
        if open.includes and group.includes == 0:  # the others alone are left
            self.row(dimension, group.open)
            if open.includes == self.index.head.campaigns:
                self.nobody = True
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
            self.workspace.flats[self.n_flats] = group[0]
            self.n_flats += 1
        else:
            self.n_groups += 1
        if group.open is not NULL:
            sb_prefetch(group.open)
        return 0

    cdef bint cursor(self, const sb_posting *posting) except -1:
        """Add a posting; return whether it is a row."""
        cdef Workspace *workspace = self.workspace
        cdef sb_cursor *cursor
        if self.n_cursors == workspace.fresh_capacity:
            workspace.fresh = <sb_cursor *>grow(
                workspace.fresh, &workspace.fresh_capacity, self.n_cursors + 1, sizeof(sb_cursor))
        cursor = workspace.fresh + self.n_cursors
        self.n_cursors += 1
        if sb_is_row(posting.count, self.index.head.campaigns):
            cursor.row = self.row_at(<uint64_t>posting.at * 4)
            cursor.rank = cursor.end = NULL
            sb_prefetch(cursor.row)
            return True
        cursor.row = NULL
        cursor.rank = <const uint32_t *>(self.index.base + <uint64_t>posting.at * 4)
        cursor.end = cursor.rank + posting.count
        sb_prefetch(cursor.rank)
        sb_prefetch(cursor.rank + 16)
        return False

    cdef uint32_t merge(self, uint32_t first) except 0:
        """Merge the cursors from the first on into a single row, which replaces them: a request that
        names thousands of values costs their postings once, not thousands of looks a campaign.
        """
        cdef size_t words = <size_t>self.index.head.blocks * SB_WORDS
        cdef uint64_t *row
        cdef sb_cursor *cursor
        cdef uint32_t i
        cdef size_t word
        made = bytearray(words * sizeof(uint64_t))
        cdef char[::1] view = made
        row = <uint64_t *>&view[0]
        for i in range(first, self.n_cursors):
            cursor = self.workspace.fresh + i
            if sb_spend(self.allowance, (words if cursor.row is not NULL
                                         else cursor.end - cursor.rank) // 16):
                break  # the row lacks campaigns, but no impression will be decided
            if cursor.row is not NULL:
                for word in range(words):
                    row[word] |= cursor.row[word]
            while cursor.rank < cursor.end:
                row[cursor.rank[0] >> 6] |= <uint64_t>1 << (cursor.rank[0] & 63)
                cursor.rank += 1
        if self.made is None:
            self.made = []
        self.made.append(made)
        cursor = self.workspace.fresh + first
        cursor.row = row
        cursor.rank = cursor.end = NULL
        self.n_cursors = first + 1
        return 1

    # -- the impression ----------------------------------------------------------------------

    def impression(self, object imp, list rivals=None):
        """Turn to an impression of the request; False if its floor has no exchange rate, or if the
        time is over.

        rivals: advertisers that may not answer, since they have other impressions of its pod; in
        the form of Index.advertiser.
        """
        cdef bint rated = False
        self.imp = None
        self.n_matches = 0
        self.finished = True
        if self.over is not None:
            self.over.n_matches = 0
            self.over.finished = True
        if self.reader.checked(imp, IMP) is None:
            raise TypeError("no impression")
        if not sb_spend(self.allowance, IMPRESSION_STEPS):
            rated = self.read_impression(imp)
            self.begin(RIVALS)
            if rivals is not None:
                self.texts(SB_AD_DOMAIN, rivals, False)
            self.end(RIVALS)
        if self.allowance.is_over:
            self.undecided += 1
            return False
        if not rated:
            return False
        self.imp = imp
        self.take_impression(self)
        if self.over is not None:
            self.over.take_impression(self)
        return True

    def allow(self, double left_s, double processor_s):
        """Let the search go on for a time, and some processor time, from now on."""
        sb_allow(self.allowance, left_s, processor_s)

    def has_time(self):
        """Look at the clock; return whether the time allowed is not over."""
        return not sb_look(self.allowance)

    cdef int take_impression(self, Query source) except -1:
        cdef Workspace *workspace = self.workspace
        cdef uint32_t i, dimension, first
        if source is not self:
            self.asked = source.asked
            self.native = source.native
        if self.made is not None:
            del self.made[self.request_made:]
        self.resolve(source)
        self.n_rows = self.request_rows
        self.n_flats = self.request_flats
        self.n_groups = self.request_groups
        self.n_cursors = self.request_cursors
        self.nobody = self.request_nobody
        self.take_offers()
        self.deals.includes = 0
        for i in range(self.index.n_order):
            dimension = self.index.order[i]
            if dimension >= SB_OF_IMPRESSION:
                self.arrange(dimension, source)
        first = source.begins[ASKED]
        sb_make_set(&self.wanted, workspace.values + first, source.ends[ASKED] - first)
        first = source.begins[RIVALS]
        sb_make_set(&self.rivals, workspace.values + first, source.ends[RIVALS] - first)
        if self.n_cursors > workspace.cursors_capacity:
            workspace.cursors = <sb_cursor *>grow(
                workspace.cursors, &workspace.cursors_capacity, self.n_cursors, sizeof(sb_cursor))
        self.block_steps = 1 + (self.n_rows + self.n_cursors) // 8
        self.n_candidates = self.n_verified = self.n_matches = 0
        self.halted = False
        self.first_look = self.guarantees
        self.rewind()
        return 0

    cdef inline void rewind(self) noexcept:
        """To the first block."""
        if self.n_cursors:
            memcpy(self.workspace.cursors, self.workspace.fresh, self.n_cursors * sizeof(sb_cursor))
        self.block = 0
        self.word = SB_WORDS
        self.finished = self.nobody

    cdef int take_offers(self) except -1:
        """The deals that some campaign wants, by value; and the least price that can answer."""
        cdef Workspace *workspace = self.workspace
        cdef Asked *asked = &self.asked
        cdef const Deal *deal
        cdef uint32_t i, value
        self.n_offers = 0
        self.guarantees = False
        self.lowest = self.undealt = UNREACHABLE if asked.private else asked.floor
        for i in range(asked.n_deals):
            if asked.deals[i].id == NO_TERM or asked.deals[i].floor < 0:
                continue
            value = workspace.values[asked.deals[i].id]
            if value != SB_NONE:
                if self.n_offers == workspace.offers_capacity:
                    workspace.offers = <Offer *>grow(
                        workspace.offers, &workspace.offers_capacity, self.n_offers + 1,
                        sizeof(Offer))
                deal = &asked.deals[i]
                sb_rise(workspace.values + deal.seats, deal.n_seats)
                sb_rise(workspace.values + deal.advertisers, deal.n_advertisers)
                workspace.offers[self.n_offers].value = value
                workspace.offers[self.n_offers].position = i
                self.n_offers += 1
                self.lowest = min(self.lowest, deal.floor)
                self.guarantees |= deal.guaranteed
        if asked.private and self.n_offers == 0:
            self.nobody = True
        if self.n_offers > 1:
            qsort(workspace.offers, self.n_offers, sizeof(Offer), by_value)
        return 0

    # -- the walk ----------------------------------------------------------------------------

    def next(self):
        """Return the next best campaign as (rank, creative, deal), or None.

        creative: an index into the campaign's creatives; deal: into the impression's deals, or -1.
        """
        cdef Match best
        self.search()
        if self.over is None:
            if not self.n_matches:
                self.undecided += self.halted
                self.halted = False
                return None
            best = self.take()
        else:
            self.over.search()
            if self.halted or self.over.halted:
                self.undecided += 1
                self.imp = None
                self.n_matches = self.over.n_matches = 0
                self.halted = self.over.halted = False
                return None
            if self.is_better_than(self.over):
                best = self.take()
            elif self.over.n_matches:
                best = self.over.take()
                best.rank += self.index.head.campaigns
            else:
                return None
        return best.rank, best.creative, best.deal

    cdef bint is_better_than(self, Query other) noexcept:
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
        return self.workspace.matches[mine].score >= other.workspace.matches[its].score

    cdef uint32_t best(self) noexcept:
        """Return which match has the highest score."""
        cdef Match *matches = self.workspace.matches
        cdef uint32_t i, best = 0
        for i in range(self.n_matches):
            matches[i].score = sb_score(
                self.asker.auction, self.index.details[matches[i].rank].seed)
            if matches[i].score > matches[best].score:
                best = i
        return best

    cdef inline Match take(self) noexcept:
        """Remove and return the best taken."""
        cdef uint32_t best = self.best() if self.n_matches > 1 else 0
        cdef Match taken = self.workspace.matches[best]
        self.n_matches -= 1
        self.workspace.matches[best] = self.workspace.matches[self.n_matches]
        return taken

    cdef int search(self) except -1:
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
        """Find the eligible campaigns of the next highest price. The first look is for guaranteed
        deals, the second one leaves out what the first one has found.
        """
        cdef uint32_t rank, block
        cdef int64_t price
        cdef const sb_campaign *campaigns = self.index.campaigns
        while not self.finished:
            while self.word < SB_WORDS and not self.bits[self.word]:
                self.word += 1
            if self.word == SB_WORDS:
                if self.block == self.index.head.blocks:
                    break
                if sb_spend(self.allowance, self.block_steps):
                    self.halted = not self.n_matches
                    break
                price = campaigns[self.block * SB_BLOCK].price
                if price < self.lowest or self.n_matches and price < self.match_price:
                    if not self.n_matches:
                        break
                    return 0
                memset(self.bits, 0xff, sizeof(self.bits))
                if price < self.undealt or self.first_look:
                    block = sb_gather(self.bits, self.block, self.index.head.blocks, &self.deals,
                                      self.workspace.cursors)
                    if block != self.block:
                        self.block = block
                        continue
                sb_narrow(self.bits, self.block, self.workspace.rows, self.request_rows,
                          self.n_rows, self.workspace.flats, self.n_flats,
                          self.workspace.cursors)
                self.block += 1
                self.word = 0
                continue
            rank = ((self.block - 1) * SB_BLOCK + self.word * 64
                    + sb_lowest(self.bits[self.word]))
            price = campaigns[rank].price
            if self.n_matches and price < self.match_price:
                return 0
            if price < self.lowest:
                break
            if sb_spend(self.allowance, 1 + self.n_groups):
                self.halted = not self.n_matches
                break
            self.bits[self.word] &= self.bits[self.word] - 1
            self.n_candidates += 1
            if not self.is_admitted(rank):
                continue
            self.n_verified += 1
            self.allowance.steps -= 4 + campaigns[rank].categories
            if self.verify(rank) == NOT_REFUSED and self.has_guarantee() == self.first_look:
                self.match_price = price
                self.add(rank)
                if rank + 1 < self.index.head.campaigns and campaigns[rank + 1].price < price:
                    return 0
        self.finished = True
        return 0

    cdef inline bint has_guarantee(self) noexcept:
        """Return whether the deal that was chosen is guaranteed."""
        return self.chosen_deal >= 0 and self.asked.deals[self.chosen_deal].guaranteed

    cdef inline bint is_admitted(self, uint32_t rank) noexcept:
        """Return whether the groups with posting lists admit the candidate."""
        cdef uint32_t i
        for i in range(self.n_groups):
            if not sb_admits(&self.workspace.groups[i], self.workspace.cursors, rank):
                return False
        return True

    cdef inline int add(self, uint32_t rank) except -1:
        cdef Workspace *workspace = self.workspace
        cdef Match *entry
        if self.n_matches == workspace.matches_capacity:
            workspace.matches = <Match *>grow(
                workspace.matches, &workspace.matches_capacity, self.n_matches + 1, sizeof(Match))
        entry = workspace.matches + self.n_matches
        entry.rank = rank
        entry.creative = self.chosen_creative
        entry.deal = self.chosen_deal
        self.n_matches += 1
        return 0

    # -- one campaign, candidate or not ----------------------------------------

    def explain(self, uint32_t rank):
        """Return the first rule that refuses the campaign for the impression: (Refusal, dimension).

        dimension: a number of `DIMENSIONS`, or FORMAT_DIMENSION where no creative has a format that
        the impression takes; -1 for a rule other than targeting. The search is left as it is.
        """
        cdef int dimension
        if self.imp is None:
            raise ValueError("no impression is set")
        if self.index.layer(&rank) is not self.index:
            return self.over.explain_own(rank)
        return self.explain_own(rank)

    cdef tuple explain_own(self, uint32_t rank):
        cdef int dimension
        if not sb_bit(self.index.active, rank):
            return Refusal.REFUSED_INACTIVE, -1
        dimension = self.refusing_dimension(rank)
        if dimension >= 0:
            return Refusal.REFUSED_TARGETING, dimension
        return Refusal(self.verify(rank)), -1

    cdef int refusing_dimension(self, uint32_t rank) except -2:
        """Return the lowest dimension whose row or group refuses the campaign, or -1."""
        cdef Workspace *workspace = self.workspace
        cdef uint32_t i, lowest = SB_DIMENSIONS
        cdef sb_cursor *cursors = <sb_cursor *>PyMem_Malloc(
            max(self.n_cursors, 1) * sizeof(sb_cursor))
        if cursors is NULL:
            raise MemoryError
        if self.n_cursors:
            memcpy(cursors, workspace.fresh, self.n_cursors * sizeof(sb_cursor))
        for i in range(1, self.n_rows):
            if not sb_bit(workspace.rows[i], rank):
                lowest = min(lowest, workspace.row_dimensions[i])
        for i in range(self.n_flats):
            if not sb_admits(&workspace.flats[i], cursors, rank):
                lowest = min(lowest, workspace.flats[i].dimension)
        for i in range(self.n_groups):
            if not sb_admits(&workspace.groups[i], cursors, rank):
                lowest = min(lowest, workspace.groups[i].dimension)
        PyMem_Free(cursors)
        return -1 if lowest == SB_DIMENSIONS else <int>lowest

    cdef int verify(self, uint32_t rank) except -1:
        """Check every rule that is not a row or a group; set the chosen creative and deal."""
        cdef const sb_campaign *campaign = self.index.campaigns + rank
        cdef const uint32_t *lists = self.index.lists + campaign.lists
        cdef const sb_value *values = self.index.values
        cdef const sb_extra *extra = NULL
        cdef uint32_t i
        sb_prefetch(lists)
        sb_prefetch(self.index.creatives + campaign.creatives)
        sb_prefetch(values + campaign.advertiser)
        if campaign.flags & SB_EXTRA:
            extra = self.index.extra(rank)
            if campaign.flags & SB_TIMED and not (
                    extra.starts_ms <= self.asker.now_ms < extra.ends_ms):
                return REFUSED_TIME
        if campaign.flags & SB_CAPPED and not self.asker.recognised:
            return REFUSED_USER
        self.chosen_deal = -1
        if campaign.flags & SB_DEALS:
            self.chosen_deal = self.best_deal(
                campaign, lists + campaign.categories, extra.deals, NULL)
            if self.chosen_deal < 0:
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
        cdef const sb_value *values = self.index.values
        cdef const uint32_t *end = own + campaign.categories
        if campaign.categories == 0:
            return not self.asker.has_acat
        if campaign.flags >> SB_FAMILY != self.asker.family:
            own = end + deals
            end = self.index.lists + self.index.creatives[campaign.creatives].lists
            if self.marker == SB_NONE:
                return False
            while own < end and own[0] != self.marker:
                own += 1
            own += 1
            if own >= end:  # they cannot be mapped
                return False
        while own < end and own[0] != self.marker:
            if sb_line_in(&self.blocked, values, own[0]):
                return False
            if self.asker.has_acat and not sb_line_in(&self.allowed, values, own[0]):
                return False
            own += 1
        return True

    cdef int best_deal(self, const sb_campaign *campaign, const uint32_t *own, uint32_t count,
                       const sb_creative *creative) except -2:
        """Return the best deal that admits the campaign, with this creative if any; -1 if none does."""
        cdef const Offer *offers = self.workspace.offers
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
        cdef const uint32_t *values = self.workspace.values
        cdef uint32_t line = campaign.advertiser
        if deal.has_seats and (campaign.seat == SB_NONE or not sb_among(
                values + deal.seats, deal.n_seats, campaign.seat)):
            return False
        if not deal.has_advertisers:
            return True
        while line != SB_NONE:
            if sb_among(values + deal.advertisers, deal.n_advertisers, line):
                return True
            line = self.index.values[line].parent
        return False

    cdef inline bint suits_dsa(self, uint32_t flags) noexcept:
        """Return whether the campaign declares what it must, and the right side renders it."""
        if not flags & SB_DSA:
            return not self.asker.needs_dsa
        return flags & self.asker.renders == self.asker.renders

    cdef bint is_near(self, const sb_extra *extra) noexcept:
        """Return whether the request is within any circle (haversine)."""
        cdef const sb_circle *circle = (
            <const sb_circle *>(self.index.base + self.index.head.circles) + extra.circles)
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
        """Choose, of the creatives that fit, the one with the highest score; where deals have prices by
        duration, of those that the best deal admits. Return what refuses, as `verify` does.
        """
        cdef const sb_creative *creative = self.index.creatives + campaign.creatives
        cdef bint timed = n_deals and self.asked.deals_are_timed
        cdef uint64_t score, best = 0
        cdef int refusal = REFUSED_CREATIVE, deal = self.chosen_deal
        cdef uint32_t i = 0
        while True:
            if (self.fits(creative + i) and self.is_paid(campaign, creative + i, NULL)
                    and (creative[i].media != SB_NATIVE or self.fits_native(rank, i))):
                if timed:
                    deal = self.best_deal(campaign, own_deals, n_deals, creative + i)
                if timed and deal < 0:
                    refusal = REFUSED_DEAL if refusal == REFUSED_CREATIVE else refusal
                else:
                    score = sb_score(self.asker.auction, creative[i].seed)
                    if refusal != NOT_REFUSED or (
                            score > best if deal == self.chosen_deal
                            else self.comes_before(deal, self.chosen_deal)):
                        refusal = NOT_REFUSED
                        best = score
                        self.chosen_creative = i
                        self.chosen_deal = deal
            if creative[i].flags & SB_LAST:
                return refusal
            i += 1

    cdef inline bint is_paid(self, const sb_campaign *campaign, const sb_creative *creative,
                             const Deal *deal) except -1:
        """Return whether the campaign pays what the impression, or the deal if any, asks for a video
        or audio creative of this duration.
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
        """Return whether a price suffices for a duration in seconds; for one unknown (-1) none does."""
        cdef const Span *span
        cdef int64_t least
        cdef uint32_t i
        if duration < 0:
            return False
        if prices.per_second > 0 and duration and prices.per_second > price // duration:
            return False
        if prices.amount > 0:
            self.allowance.steps -= CALL_STEPS
            least = (<object>self.reader).floor_micros(
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
                &self.languages, self.index.values, creative.language):
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
        """Return whether the creative's assets fit; exchange.native_answer decides."""
        if sb_spend(self.allowance, CALL_STEPS):
            return False
        return (<object>self.reader).fits_native(self.native, self.index, rank, creative)

    cdef inline bint fits_banner(self, const sb_creative *creative) noexcept:
        if not self.fits_size(creative) or self.is_blocked(creative):
            return False
        if self.asked.types >> creative.type & 1:
            return False
        return not (self.asked.has_mimes and creative.mimes) or sb_any_in(
            &self.wanted, self.index.lists + creative.lists, creative.mimes)

    cdef inline bint is_blocked(self, const sb_creative *creative) noexcept:
        return (creative.attributes & self.asked.attributes[creative.media] != 0
                or sb_any_in(&self.wanted, self.index.lists + creative.lists + creative.mimes,
                             creative.other_attributes))

    cdef inline bint fits_size(self, const sb_creative *creative) noexcept:
        cdef uint64_t size = <uint64_t>creative.w << 24 | creative.h
        cdef uint32_t i
        for i in range(self.asked.n_sizes):
            if self.asked.sizes[i] == size:
                return True
        return False

    cdef bint fits_stream(self, const sb_creative *creative, const Stream *stream) noexcept:
        cdef const uint32_t *lists = self.index.lists + creative.lists
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
            return stream.shortest < 0 and stream.longest < 0
        return ((stream.shortest < 0 or creative.duration >= stream.shortest)
                and (stream.longest < 0 or creative.duration <= stream.longest))

    # -- introspection -----------------------------------------------------------------------

    def carried(self):
        """Return the values of the request and the current impression by dimension, in the form in
        which they are compared. Dimensions in which no campaign has an entry are not read.
        """
        cdef dict values = {}
        self.read_request()
        self.tell(values)
        if self.imp is not None:
            self.read_impression(self.imp)
            self.tell(values)
        return values

    cdef int tell(self, dict values) except -1:
        cdef sb_term *term
        cdef uint32_t i
        for i in range(self.n_terms):
            term = self.workspace.terms + i
            if term.space < SB_FORMAT:
                if term.form == SB_NUMBER:
                    value = term.number
                else:
                    value = term.text[:term.size].decode()
                    value = value.lower() if term.form == SB_FOLDED else value
                values.setdefault(<int>term.space, []).append(value)
        return 0

    @property
    def point(self):
        """(lat, lon) in degrees if the request has them and they may be used, else None."""
        return (self.asker.lat, self.asker.lon) if self.asker.located else None

    @property
    def declares(self):
        """Whether the request asks for what campaigns declare under the Digital Services Act."""
        return self.asker.asks_dsa

    @property
    def counts(self):
        """The search's work so far, without the overlay's: the rows, groups of rows and groups with
        posting lists that narrow a block; then the blocks, their candidates, and those of them that
        were verified.
        """
        return {"rows": self.n_rows, "flats": self.n_flats, "groups": self.n_groups,
                "postings": self.n_cursors, "blocks": self.block,
                "candidates": self.n_candidates, "verified": self.n_verified}
