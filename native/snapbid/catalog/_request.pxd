"""The terms of a request; see _request.pyx."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_GetItem
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from allowance cimport sb_allowance
from layout cimport SB_DIMENSIONS, SB_KEY_MAX, SB_MASKED, SB_NATIVE, sb_creative, sb_header
from memory cimport grow
from search cimport sb_expect, sb_number_term, sb_term, sb_text_term
from snapbid.catalog._members cimport MemberBook, Members
from spelling cimport sb_slice

# -- fields of decoded requests, at their offsets in memory ----------------------------------------

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
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t index)
    bint Py_IS_TYPE(object value, PyTypeObject *type)


# The structs and fields that are read. An enumerator is the struct's class name in upper case, then
# the field's name in OpenRTB. `Reader` derives the offsets from these names.
cpdef enum _Struct:
    BIDREQUEST, IMP, BANNER, FORMAT, VIDEO, AUDIO, NATIVE, PMP, DEAL, SITE, APP, DOOH, PUBLISHER, DEVICE
    GEO, USER, USEREXT, EID, UID, DATA, SEGMENT, REGS, REGSEXT, DSA, DURFLOORS
    DEVICEEXT, IMPEXT, PREBIDEXT
    N_STRUCTS

cpdef enum _Field:
    BIDREQUEST_ID, BIDREQUEST_SITE, BIDREQUEST_APP, BIDREQUEST_DOOH, BIDREQUEST_DEVICE
    BIDREQUEST_USER, BIDREQUEST_REGS, BIDREQUEST_BCAT, BIDREQUEST_ACAT, BIDREQUEST_CATTAX, BIDREQUEST_BADV, BIDREQUEST_BAPP
    BIDREQUEST_BSEAT, BIDREQUEST_WSEAT, BIDREQUEST_WLANG, BIDREQUEST_WLANGB
    BIDREQUEST_IMP, BIDREQUEST_TEST, BIDREQUEST_TMAX, BIDREQUEST_CUR
    IMP_BANNER, IMP_VIDEO, IMP_AUDIO, IMP_NATIVE, IMP_PMP, IMP_BIDFLOOR, IMP_BIDFLOORCUR, IMP_SECURE
    IMP_BCAT, IMP_BADV
    IMP_RWDD, IMP_INSTL, IMP_ID, IMP_QTY, IMP_EXT, IMPEXT_RWDD, IMPEXT_PREBID, PREBIDEXT_RWDD
    BANNER_W, BANNER_H, BANNER_FORMAT, BANNER_BATTR, BANNER_POS
    BANNER_BTYPE, BANNER_MIMES, BANNER_API
    FORMAT_W, FORMAT_H
    VIDEO_MIMES, VIDEO_MINDURATION, VIDEO_MAXDURATION, VIDEO_RQDDURS, VIDEO_PODDUR
    VIDEO_MAXSEQ, VIDEO_PODID
    VIDEO_PROTOCOLS, VIDEO_PROTOCOL, VIDEO_BATTR
    VIDEO_LINEARITY, VIDEO_SKIP, VIDEO_MINBITRATE, VIDEO_MAXBITRATE, VIDEO_DELIVERY
    VIDEO_BOXINGALLOWED, VIDEO_W, VIDEO_H
    VIDEO_POS, VIDEO_PLCMT, VIDEO_PLACEMENT, VIDEO_API
    VIDEO_MINCPMPERSEC, VIDEO_DURFLOORS
    AUDIO_MIMES, AUDIO_MINDURATION, AUDIO_MAXDURATION, AUDIO_RQDDURS, AUDIO_PODDUR
    AUDIO_MAXSEQ, AUDIO_PODID
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
    DEVICE_OS, DEVICE_CARRIER, DEVICE_LANGUAGE, DEVICE_LANGB, DEVICE_IFA, DEVICE_LMT, DEVICE_DNT
    DEVICE_EXT, DEVICEEXT_SUA
    GEO_COUNTRY, GEO_REGION, GEO_CITY, GEO_ZIP, GEO_LAT, GEO_LON
    USER_DATA, USER_GEO, USER_ID, USER_BUYERUID, USER_EIDS, USER_EXT, USEREXT_EIDS
    EID_SOURCE, EID_UIDS, UID_ID
    DATA_SEGMENT
    SEGMENT_ID
    REGS_COPPA, REGS_GPC, REGS_GDPR, REGS_US_PRIVACY, REGS_GPP, REGS_GPP_SID, REGS_EXT
    REGSEXT_COPPA, REGSEXT_GPC, REGSEXT_GDPR, REGSEXT_US_PRIVACY, REGSEXT_GPP, REGSEXT_GPP_SID
    REGS_DSA, REGSEXT_DSA, DSA_DSAREQUIRED, DSA_PUBRENDER
    N_FIELDS

cdef class Reader:
    cdef tuple structs
    cdef object countries
    cdef object systems
    cdef object agents
    cdef object opt_outs
    cdef dict languages
    cdef dict categories
    cdef bytes first_flags
    cdef bint in_usd
    cdef MemberBook book
    cdef dict former_ids
    cdef Py_ssize_t offsets[N_FIELDS]
    cdef PyTypeObject *types[N_STRUCTS]

    cdef inline object get(self, object owner, int field):
        return <object>sb_field(<PyObject *>owner, self.offsets[field])

    cdef inline object child(self, object owner, int field, int struct):
        """Return the struct in a field; None if `owner` or the field is None. Raises TypeError."""
        return None if owner is None else self.checked(self.get(owner, field), struct)

    cdef inline object checked(self, object value, int struct):
        """Return a value that is a struct of this class, or None. Raises TypeError otherwise."""
        if value is not None and not Py_IS_TYPE(value, self.types[struct]):
            self.refuse(value, struct)
        return value

    cdef int refuse(self, object value, int struct) except -1

    cdef inline uint32_t flags_of_first(self, int number) noexcept:
        """Return the flags of a category of the Content Taxonomy 1.0 (reference.taxonomies)."""
        return (<const uint16_t *>PyBytes_AS_STRING(self.first_flags))[number] if number >= 0 else 0


cdef inline bint filled(object items) noexcept:
    """Return whether this is a non-empty list."""
    return PyList_CheckExact(items) and PyList_GET_SIZE(items) != 0


cdef inline object first(object items, Py_ssize_t most):
    """Return up to `most` items from the start of a list; an empty tuple for anything else."""
    if not PyList_CheckExact(items):
        return ()
    return items if PyList_GET_SIZE(items) <= most else (<list>items)[:most]


cdef inline bint is_too_long(object text) noexcept:
    """Return whether a text has more characters than any key has bytes."""
    return PyUnicode_Check(text) and PyUnicode_GET_LENGTH(text) > SB_KEY_MAX


cdef inline bint integer(object number, int64_t *result) noexcept:
    """Convert a non-negative integer of up to 63 bits; return False for anything else."""
    cdef int overflow = 0
    if not PyLong_Check(number):
        return False
    result[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and result[0] >= 0


cdef inline bint is_one(object flag) noexcept:
    cdef int64_t number
    return integer(flag, &number) and number == 1


cdef inline bint is_zero(object flag) noexcept:
    cdef int64_t number
    return integer(flag, &number) and number == 0


cdef inline int64_t positive(object number) noexcept:
    """Convert a positive integer; 0 if it is absent or out of range."""
    cdef int64_t value
    return value if integer(number, &value) else 0


cdef inline bint is_given(object text) noexcept:
    """Return whether this is neither None nor an empty text."""
    if PyUnicode_CheckExact(text):
        return PyUnicode_GET_LENGTH(text) != 0
    return text is not None


cdef inline object text_of(object text):
    return text if PyUnicode_CheckExact(text) else str(text)


cdef inline object recall(object memo, object text):
    """Return a memo's entry for a text; the memo computes a missing one (bidding.lookups.Memo)."""
    cdef PyObject *value = PyDict_GetItem(memo, text)
    return <object>value if value is not NULL else memo[text]


cdef inline uint32_t bits(object numbers) noexcept:
    """Return the bits of the numbers below SB_MASKED; other numbers have none."""
    cdef uint32_t mask = 0
    cdef int64_t number
    if filled(numbers):
        for item in <list>numbers:
            if item is not None and integer(item, &number) and number < SB_MASKED:
                mask |= <uint32_t>1 << number
    return mask


# -- terms: keys that a campaign may have, before they are looked up -------------------------------

cdef enum:  # parts: the dimensions, then
    BLOCKED = SB_DIMENSIONS  # categories, advertisers, apps and seats that may not bid
    SEATS                    # the only seats that may bid
    LANGUAGES                # the only languages of creatives that may bid
    CATEGORIES               # the only categories that may bid
    MARKER                   # of categories mapped to the request's taxonomy
    ASKED                    # the impression's blocked attributes, mimes and protocols
    RIVALS                   # advertisers of the pod's other impressions
    N_PARTS


cdef class Terms:
    cdef const sb_header *head  # of the index in which they will be looked up
    cdef sb_term *terms
    cdef uint32_t count, capacity
    cdef uint32_t begins[N_PARTS]
    cdef uint32_t ends[N_PARTS]
    cdef list kept
    cdef set noted  # restricting lists with a meaningless entry, since `forget`; or None
    cdef bint has_pattern  # the list of ids read last has a pattern
    cdef int64_t foreign_left  # steps for reading non-ASCII entries, since `clear`
    cdef char *ink  # where the next text that is not part of the request is written
    cdef uint32_t ink_left
    cdef char first_ink[256]

    cdef int clear(self) except -1
    cdef int forget(self) except -1
    cdef int note(self, str where) except -1
    cdef const char *encoded(self, object text, Py_ssize_t *size) except? NULL
    cdef int texts(self, uint32_t space, list texts) except -1
    cdef int trimmed(self, uint32_t space, object text, bint fold) except -1
    cdef bint entries(self, Reader reader, uint32_t space, object texts, str where) except -1
    cdef uint32_t masked(self, uint32_t space, object numbers, bint *any, str where) except? 0
    cdef dict by_dimension(self)
    cdef int keep(self, object text) except -1
    cdef int push_copy(self, uint32_t space, const char *text, Py_ssize_t size, bint fold) except -1
    cdef bint push_language(self, Reader reader, uint32_t space, sb_slice tag) except -1
    cdef const char *foreign(self, object text, Py_ssize_t *size) except? NULL
    cdef str mapped(self, str text)
    cdef bint has_too_much(self) noexcept
    # Steps of `entries`.
    cdef bint parts(self, Reader reader, uint32_t space, sb_slice entry, str where) except -1
    cdef bint push_entry(self, Reader reader, uint32_t space, sb_slice entry,
                         str where) except -1
    cdef bint push_short(self, uint32_t space, sb_slice entry, bint fold) except -1
    cdef bint push_ids(self, uint32_t space, sb_slice entry) except -1
    cdef bint push_bundles(self, sb_slice text) except -1
    cdef bint push_domains(self, sb_slice entry, bint blocks) except -1
    cdef int push_hosts(self, sb_slice text) except -1
    cdef sb_slice unescaped(self, sb_slice entry, bint exact) except *
    cdef str decoded(self, object url)
    # Steps of `text`.
    cdef const char *unusual(self, object text, bint *fold, Py_ssize_t *size) except? NULL
    cdef const char *digits(self, int64_t number, Py_ssize_t *size) except NULL
    cdef int need_ink(self, Py_ssize_t size) except -1
    cdef const char *written(self, Py_ssize_t size) noexcept

    cdef inline void begin(self, uint32_t part) noexcept:
        self.begins[part] = self.count

    cdef inline void end(self, uint32_t part) noexcept:
        self.ends[part] = self.count

    cdef inline uint32_t size(self, uint32_t part) noexcept:
        """Return the number of terms of a part."""
        return self.ends[part] - self.begins[part]

    cdef inline sb_term *push(self) except NULL:
        if self.count == self.capacity:
            self.terms = <sb_term *>grow(self.terms, &self.capacity, self.count + 1, sizeof(sb_term))
        self.count += 1
        return self.terms + self.count - 1

    cdef inline int push_text(self, uint32_t space, const char *text, size_t size,
                              bint fold) except -1:
        """Add a term for a text that stays in memory; `fold`: ignore the case of ASCII letters."""
        cdef sb_term *term = self.push()
        sb_text_term(term, space, text, size, fold)
        sb_expect(self.head, term.hash)
        return 0

    cdef inline int push_number(self, uint32_t space, uint64_t number) except -1:
        cdef sb_term *term = self.push()
        sb_number_term(term, space, number)
        sb_expect(self.head, term.hash)
        return 0

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
        if size == 0 or size > SB_KEY_MAX:
            return 0
        return self.push_text(space, raw, size, fold)

    cdef inline int number(self, uint32_t space, object number) except -1:
        cdef int64_t value
        if number is not None and integer(number, &value):
            return self.push_number(space, value)
        return 0


# -- the request -----------------------------------------------------------------------------------

cdef struct Interest:  # of the campaigns of base and overlay
    uint32_t used  # bits: dimensions in which any campaign has an entry
    uint32_t families  # bits: taxonomies of categories
    bint has_caps  # some campaign bids only for a recognised user


cdef struct Asker:
    uint64_t auction
    int64_t now_ms
    bint has_wseat, has_languages, has_bcat, has_acat, located, recognised
    bint asks_dsa, needs_dsa  # declarations are sent; only campaigns with one may bid
    uint32_t renders  # flags required of a campaign with a declaration
    uint32_t family  # the taxonomy of its categories (reference.taxonomies); 0: a vendor's, or unknown
    uint32_t unmapped  # bits: families into which bcat cannot be mapped completely
    bint blocks_unknown  # bcat has a category unknown to its taxonomy
    bint blocks_bundles, blocks_seats  # all, since bapp or bseat has a pattern
    double lat, lon  # degrees


cdef class RequestReading:
    cdef Terms terms
    cdef Asker asker
    cdef object user  # the recognised user, for frequency caps; or None
    cdef bint is_restricted  # some product must not advertise to its person
    cdef object lookups  # bidding.lookups.Lookups
    cdef Reader reader
    cdef Interest interest
    cdef object request
    cdef str ssp
    cdef str canonical
    # Texts that terms point into, other than the request's own.
    cdef object country_code, system, browser
    cdef Members members  # owns the names of audiences and products
    cdef str marker  # of categories in the request's taxonomy: "7:"
    cdef char region_key[64]

    cdef int read(self, object lookups, Reader reader, object request, str ssp, str canonical,
                  int64_t now_ms, const Interest *interest) except -1
    cdef int forget(self) except -1
    cdef bint permits_user_data(self) except -1
    # Steps of `read`.
    cdef int read_blocked_by_impressions(self, object imps) except -1
    cdef int read_dsa(self, object regs) except -1
    cdef int requirement(self, object dsa) except -1
    cdef int read_categories_of_ads(self, object request) except -1
    cdef bint ad_categories(self, object texts, str where) except -1
    cdef bint category_parts(self, sb_slice entry, str where) except -1
    cdef int push_known(self, tuple entry, bint blocks) except -1
    cdef int push_first(self, sb_slice entry, str where) except -1
    cdef int push_other(self, sb_slice entry, str where) except -1
    cdef int read_auction(self, object id) except -1
    cdef object read_place(self, object own, object device, object user)
    cdef int read_name(self, uint32_t dimension, object named, object own, int field) except -1
    cdef bint locate(self, object geo) except -1
    cdef object country(self, object geo)
    cdef int read_region(self, str country, object code) except -1
    cdef int read_user_data(self, object named, object own, object device, object user) except -1
    cdef int read_persons(self, object device, object user) except -1
    cdef int look_up_eids(self, object eids, list audiences, list products) except -1
    cdef int look_up(self, const char *kind, object scope, object id, list audiences,
                     list products) except -1
    cdef bint member(self, bytes key, const char *kind, object scope, object id,
                     uint64_t *found) except -1
    # Called for a bid whose markup has a click id.
    cdef uint64_t clicker(self, bytes key) except? 0
    cdef bint is_clicker(self, bytes key, const char *kind, object scope, object id,
                         uint64_t *found) except -1
    cdef bint is_among(self, bytes key, object eids, uint64_t *found) except -1
    cdef int read_device(self, object device) except -1
    cdef bint read_language(self, object language) except -1
    cdef int read_publication(self, object site, object app, object dooh) except -1
    cdef int read_domain(self, object domain, object page) except -1
    cdef int read_domains_in(self, object text) except -1
    cdef int push_site(self, object host) except -1
    cdef object host(self, object url)
    cdef int read_publisher(self, object owner, int field) except -1
    cdef int read_categories(self, object categories) except -1
    cdef int read_category_parts(self, sb_slice entry, uint32_t *left) except -1
    cdef int push_spelled(self, sb_slice category) except -1
    cdef int push_category(self, sb_slice category) except -1


# -- an impression ---------------------------------------------------------------------------------

cdef enum:
    CALL_STEPS = 64  # the cost of a call of bidding.lookups
    NO_TERM = 0xffffffff

cdef struct Span:  # a floor for durations, both ends included
    int64_t shortest, longest  # seconds
    int64_t floor  # micro-USD, negative: it cannot be expressed in USD


cdef struct Prices:  # the floors of a video or audio creative, by its duration
    bint limited
    int64_t per_second  # micro-USD, if exact; else the next two fields count
    double amount
    PyObject *currency  # borrowed from the request
    uint32_t first_span, last_span  # of the impression's spans, contiguous


cdef struct Stream:  # the requirements of an impression's video or audio
    bint present, has_mimes, has_protocols
    int64_t shortest, longest  # seconds, 0: no limit
    bint exact  # only the impression's listed durations fit
    uint32_t first_duration, n_durations
    uint32_t protocols  # bits, those below SB_MASKED
    bint limits_media  # by any of the following
    uint32_t flags  # that a creative must have
    bint has_delivery
    uint32_t delivery  # bits, those below SB_MASKED
    int64_t least_bitrate, most_bitrate  # kbit/s, 0: no limit
    int64_t most_ads  # 0: no limit
    int64_t player_w, player_h  # pixels, if boxing is not allowed; 0: no limit
    Prices prices


cdef struct Deal:  # its terms are among the impression's
    int64_t floor  # micro-USD, negative: it cannot be expressed in USD
    uint32_t id  # its term, or NO_TERM
    uint32_t seats, n_seats, advertisers, n_advertisers  # terms
    bint has_seats, has_advertisers
    bint guaranteed
    Prices prices


cdef struct Asked:
    int64_t floor
    bint secure, private, native
    bint has_mimes  # of the banner
    uint32_t types  # bits of a banner's types that are blocked
    uint32_t native_kinds  # kinds of assets that the native request requires
    Stream video, audio
    uint32_t attributes[SB_NATIVE + 1]  # by medium: bits of the blocked ones
    uint32_t apis[SB_NATIVE + 1]  # by medium: bits of the supported ones
    uint64_t *sizes  # w << 24 | h
    uint32_t n_sizes
    uint32_t *durations  # seconds, ascending per medium
    uint32_t n_durations
    Deal *deals
    uint32_t n_deals
    bint deals_are_timed  # some deal has prices by duration
    Span *spans
    uint32_t n_spans


cdef inline bint fits_player(int64_t w, int64_t h, const Stream *stream) noexcept:
    """Return whether media fit the player: no larger, and of the same aspect ratio to within a
    pixel, since sides are whole pixels."""
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


cdef inline bint fits_media(const sb_creative *creative, const Stream *stream) noexcept:
    """Return whether the creative's media fit; unknown media do not."""
    if stream.most_ads and creative.ads > stream.most_ads:
        return False
    if stream.flags & ~<uint32_t>creative.flags:
        return False
    if stream.has_delivery and not stream.delivery & creative.delivery:
        return False
    if creative.bitrate < stream.least_bitrate:
        return False
    if stream.most_bitrate and not 0 < creative.bitrate <= stream.most_bitrate:
        return False
    return fits_player(creative.w, creative.h, stream)


cdef class ImpressionReading:
    cdef Terms terms
    cdef Asked asked  # its lists are owned by this object
    cdef object native  # the native request, or None
    cdef object lookups  # bidding.lookups.Lookups
    cdef Reader reader
    cdef uint32_t used  # bits: dimensions in which any campaign has an entry
    cdef sb_allowance *allowance
    cdef uint32_t sizes_capacity, durations_capacity, deals_capacity, spans_capacity

    cdef bint read(self, object imp, list rivals) except -1
    cdef int forget(self) except -1
    # Steps of `read`.
    cdef void clear(self) noexcept
    cdef int read_placement(self, object imp, object video, object native) except -1
    cdef int read_native_placement(self, object plcmttype) except -1
    cdef object rewarded(self, object imp)
    cdef int read_sizes(self, object banner) except -1
    cdef int size(self, object w, object h) except -1
    cdef int read_video(self, object video) except -1
    cdef int read_audio(self, object audio) except -1
    cdef int read_player(self, Stream *stream, object video) except -1
    cdef int read_bitrates(self, Stream *stream, object least, object most) except -1
    cdef int read_durations(self, Stream *stream, object exact, object pod) except -1
    cdef void read_ads(self, Stream *stream, object most, object pod, object pod_duration) noexcept
    cdef int read_prices(self, Prices *prices, object per_second, object floors,
                         object currency) except -1
    cdef int read_deals(self, object deals) except -1
    cdef int64_t floor(self, object amount, object currency) except? -2
    cdef int64_t plain_floor(self, double given, object currency) except? -1
