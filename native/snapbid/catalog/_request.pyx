# cython: auto_pickle=False, autotestdict=False
"""The terms of a request, which campaigns may target; see `_request.pyi`.

A `Reader` returns the fields of decoded structs; a value whose type is not OpenRTB's counts as
absent. `RequestReading` and `ImpressionReading` turn them into `Terms`, keys that campaigns may
name, and into plain fields. Contract 3 says where each value comes from.

Terms are grouped in parts: a part is a dimension, or a list that restricts who may bid. The terms
of a part are contiguous, from `begin` to `end`. A text that is not part of the request is kept for
as long as the terms are.

Only fields that some campaign needs are read; `Interest` lists them. Floors are in micro-USD, or in
millionths of the currency in which bids are made.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_Free
from cpython.object cimport PyObject
from cpython.unicode cimport (PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_CheckExact,
                              PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8)
from libc.math cimport rint
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcpy, memset, strlen

from allowance cimport sb_spend
from layout cimport *
from memory cimport grow
from search cimport SB_FOLDED, SB_NUMBER, sb_digits, sb_sort
from spelling cimport *

from snapbid.campaigns.domains import ANY, mapped, narrow

cdef extern from "persons.h" nogil:
    uint64_t sb_person(const char *key, const char *name, size_t size)
    bint sb_is_plain_id(const char *id, size_t size)

# -- fields of decoded requests --------------------------------------------------------------------

@cython.final
cdef class Reader:
    # Fields are read at their offsets in memory, so each object's class is checked first.

    def __init__(self, tuple structs, object countries, object systems, object agents,
                 object opt_outs, dict languages not None, dict categories not None,
                 bytes first_flags not None, bint in_usd=True, MemberBook book=None,
                 dict former_ids not None={}):
        classes = {struct.__name__.upper(): struct for struct in structs}
        names = [number.name for number in _Struct if number != N_STRUCTS]
        if not set(names) <= set(classes):
            raise ValueError(f"not the structs of a request, which are {', '.join(names)}")
        self.countries = countries
        self.systems = systems
        self.agents = agents
        self.opt_outs = opt_outs
        self.languages, self.categories = languages, categories
        if len(first_flags) != 2 * SB_MAX_FIRST * SB_MAX_SECOND:
            raise ValueError("not the flags of the Content Taxonomy 1.0")
        self.first_flags = first_flags
        self.in_usd = in_usd
        self.book = book
        self.former_ids = former_ids
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

    cdef int refuse(self, object value, int struct) except -1:
        raise TypeError(f"{type(value).__name__} instead of {self.structs[struct].__name__}")


# -- terms -----------------------------------------------------------------------------------------

cdef enum:
    MAX_DIGITS = 20
    INK = 8192  # bytes
    ALL = 0xffffffff  # bits
    TODAY = 2  # letters of a code
    # Reading non-ASCII entries is some 20 times as slow as reading others, so it is bounded.
    FOREIGN_STEPS = 8192  # for a request, and for each impression: some 3 ms
    MAPPED_STEPS = 6  # of mapping an entry, and one more for each character
    MOST_MAPPED = 8192  # entries whose mapping is remembered
    LONGEST_MAPPED = 256  # characters of such an entry
    LONGEST_URL = 2049  # bytes; a host ends before the last one, campaigns.domains.MAX_AUTHORITY

cdef dict mapped_before = {}  # SSPs send the same lists with each request


cdef inline bint push_plain(Terms terms, sb_slice entry, bint is_host) except -1:
    """Add a term for a host in standard form, or a bundle, if a campaign could have it; return
    whether the ASCII entry is one."""
    cdef sb_term *term = terms.push()
    cdef bint is_plain = (sb_plain_host(term, SB_AD_DOMAIN, entry.at, entry.size) if is_host
                          else sb_plain_bundle(term, SB_AD_BUNDLE, entry.at, entry.size))
    if is_plain and entry.size <= SB_KEY_MAX:
        sb_expect(terms.head, term.hash)
    else:
        terms.count -= 1
    return is_plain


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Terms:

    def __dealloc__(self):
        PyMem_Free(self.terms)

    cdef int clear(self) except -1:
        """Clear all terms and parts."""
        self.count = 0
        self.foreign_left = FOREIGN_STEPS
        memset(self.begins, 0, sizeof(self.begins))
        memset(self.ends, 0, sizeof(self.ends))
        self.kept = None
        self.ink = self.first_ink
        self.ink_left = sizeof(self.first_ink)
        return 0

    cdef int forget(self) except -1:
        """Release the request's texts and notes."""
        self.kept = self.noted = None
        return 0

    cdef int note(self, str where) except -1:
        """Record that a restricting list has a meaningless entry."""
        if self.noted is None:
            self.noted = set()
        self.noted.add(where)
        return 0

    cdef int keep(self, object text) except -1:
        """Keep a text that is not part of the request alive while terms point into it."""
        if self.kept is None:
            self.kept = []
        self.kept.append(text)
        return 0

    cdef const char *encoded(self, object text, Py_ssize_t *size) except? NULL:
        """Return a text's own UTF-8; empty if it cannot be encoded (an unpaired surrogate)."""
        if PyUnicode_IS_COMPACT_ASCII(text):
            size[0] = PyUnicode_GET_LENGTH(text)
            return <const char *>PyUnicode_DATA(text)
        try:
            return PyUnicode_AsUTF8AndSize(text, size)
        except UnicodeEncodeError:
            size[0] = 0
            return b""

    cdef const char *unusual(self, object text, bint *fold, Py_ssize_t *size) except? NULL:
        """Return an integer or a non-ASCII text in UTF-8.

        If `fold` is set, a non-ASCII text is casefolded, and `fold` is cleared.
        """
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
        """Write an integer as text, natively, since a list may have thousands."""
        self.need_ink(MAX_DIGITS)
        size[0] = sb_digits(self.ink, number)
        return self.written(size[0])

    cdef const char *foreign(self, object text, Py_ssize_t *size) except? NULL:
        """Return a non-ASCII or numeric entry of a restricting list in UTF-8 and lower case."""
        cdef int64_t number
        if PyLong_CheckExact(text) and integer(text, &number):
            return self.digits(number, size)
        text = (text if PyUnicode_Check(text) else str(text)).strip().lower()
        if not text.isascii():
            text = self.mapped(text)
        self.keep(text)
        return self.encoded(text, size)

    cdef str mapped(self, str text):
        """Map a non-ASCII text as `campaigns.domains` does; "" once that took too many steps."""
        cdef PyObject *before = PyDict_GetItem(mapped_before, text)
        cdef str made
        self.foreign_left -= 1
        if before is not NULL:
            return <str><object>before
        self.foreign_left -= MAPPED_STEPS + len(text)
        if self.has_too_much():
            return ""
        made = mapped(text)
        if len(text) <= LONGEST_MAPPED:
            if len(mapped_before) >= MOST_MAPPED:
                mapped_before.clear()
            mapped_before[text] = made
        return made

    cdef bint has_too_much(self) noexcept:
        """Return whether there are more non-ASCII entries than may be read."""
        return self.foreign_left < 0

    cdef int push_copy(self, uint32_t space, const char *text, Py_ssize_t size,
                       bint fold) except -1:
        """Add a term for a copy of a text whose memory is about to be reused."""
        self.need_ink(size)
        memcpy(self.ink, text, size)
        return self.push_text(space, self.written(size), size, fold)

    cdef int need_ink(self, Py_ssize_t size) except -1:
        """Reserve `size` bytes at `ink`."""
        if self.ink_left < size:
            more = PyBytes_FromStringAndSize(NULL, max(size, INK))
            self.keep(more)
            self.ink = PyBytes_AS_STRING(more)
            self.ink_left = max(size, INK)
        return 0

    cdef inline const char *written(self, Py_ssize_t size) noexcept:
        """Return the start of the bytes just written at `ink`."""
        self.ink += size
        self.ink_left -= size
        return self.ink - size

    cdef int texts(self, uint32_t space, list texts) except -1:
        """Add terms for texts spelled as in the index."""
        for text in texts:
            self.text(space, text, False)
        return 0

    cdef int trimmed(self, uint32_t space, object text, bint fold) except -1:
        """Add a term for a text without surrounding white space, if a campaign could have it."""
        cdef const char *raw
        if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
            raw = <const char *>PyUnicode_DATA(text)
            self.push_short(space, sb_trimmed(raw, raw + PyUnicode_GET_LENGTH(text)), fold)
            return 0
        if PyUnicode_Check(text):
            text = text.strip()
            self.keep(text)
        return self.text(space, text, fold)

    cdef bint entries(self, Reader reader, uint32_t space, object texts, str where) except -1:
        """Add terms for the entries of a restricting list; return whether there are any.

        Entries are interpreted as in contract 3; meaningless ones are noted under `where`, the
        list's name.
        """
        cdef int kind = (SB_HOSTS if space == SB_AD_DOMAIN else SB_BUNDLES if space == SB_AD_BUNDLE
                         else SB_IDS if space == SB_SEAT else SB_TYPES)
        cdef bint any = False, exact = kind == SB_IDS or kind == SB_BUNDLES, folds = False
        cdef sb_slice entry, number
        cdef Py_ssize_t size
        self.has_pattern = False
        if not filled(texts):
            return False
        for text in <list>texts:
            if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
                entry.at = <const char *>PyUnicode_DATA(text)
                entry.size = PyUnicode_GET_LENGTH(text)
                if entry.size == 0:
                    continue
                if kind == SB_HOSTS:
                    if push_plain(self, entry, True):
                        any = True
                        continue
                elif kind == SB_BUNDLES:
                    if push_plain(self, entry, False):
                        any = True
                        number = sb_store_number(entry)
                        if number.size:
                            self.push_short(space, number, False)
                        if entry.at[entry.size - 1] == c'.':
                            self.push_short(space, sb_without_dot(entry), False)
                        continue
                elif space != SB_AD_LANGUAGE and sb_is_plain(entry.at, entry.size, kind):
                    any = True
                    if entry.size <= SB_KEY_MAX:
                        self.push_text(space, entry.at, entry.size, not exact)
                    if exact and entry.at[entry.size - 1] == c'.':
                        self.push_short(space, sb_without_dot(entry), False)
                    continue
            elif text is None:
                continue
            elif exact:  # case counts
                if PyUnicode_Check(text):
                    self.foreign_left -= MAPPED_STEPS + len(text)
                    self.text(space, text, False)
                    text = narrow(text)
                entry.at = self.unusual(text, &folds, &size)
                entry.size = size
            else:
                entry.at = self.foreign(text, &size)
                entry.size = size
            if (kind == SB_HOSTS or kind == SB_BUNDLES) \
                    and memchr(entry.at, c'%', entry.size) is not NULL:
                if exact:
                    self.push_short(space, entry, False)
                entry = self.unescaped(entry, exact)
            if self.has_too_much():
                return True
            any |= self.parts(reader, space, entry, where)
        return any

    cdef bint parts(self, Reader reader, uint32_t space, sb_slice entry, str where) except -1:
        """Add terms for the parts of a comma-separated entry; return whether there are any."""
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part
        cdef bint any = False
        if space == SB_AD_BUNDLE or space == SB_SEAT:
            self.push_short(space, entry, False)  # a comma may be part of an id
        while at <= end:
            part = sb_next_part(&at, end, SB_COMMAS)
            if part.size:
                any = True
                if not self.push_entry(reader, space, part, where):
                    self.note(where)
        return any

    cdef bint push_entry(self, Reader reader, uint32_t space, sb_slice entry,
                         str where) except -1:
        """Add terms for an entry; return whether it is meaningful."""
        if space == SB_AD_LANGUAGE:
            return self.push_language(reader, space, entry)
        if space == SB_AD_DOMAIN:
            return self.push_domains(entry, where is not WADOMAIN)
        if space == SB_AD_BUNDLE or space == SB_SEAT:
            return self.push_ids(space, entry)
        return self.push_short(space, sb_type_in(entry), True)

    cdef bint push_short(self, uint32_t space, sb_slice entry, bint fold) except -1:
        """Add a term for an entry if a campaign could have it; return whether it is not empty."""
        if 0 < entry.size <= SB_KEY_MAX:
            self.push_text(space, entry.at, entry.size, fold)
        return entry.size != 0

    cdef bint push_ids(self, uint32_t space, sb_slice entry) except -1:
        """Add terms for an id, and for each id in it if it may be a pasted list; return whether
        the entry contains only ids.

        A pattern sets `has_pattern`.
        """
        cdef int kind = SB_BUNDLES if space == SB_AD_BUNDLE else SB_IDS
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part
        cdef bint all = True
        self.push_short(space, entry, False)
        while at <= end:
            part = sb_next_part(&at, end, SB_PASTED)
            if part.size < entry.size:
                self.push_short(space, part, False)
            if sb_is_pattern(part, kind):
                self.has_pattern = True
                all = False
            if kind == SB_BUNDLES:
                all &= self.push_bundles(part)
            else:
                self.push_short(space, sb_without_dot(part), False)
        return all

    cdef bint push_bundles(self, sb_slice text) except -1:
        """Add terms for the bundles that occur in a text, such as a store's address; return whether
        the text is one itself, or empty."""
        cdef const char *end = text.at + text.size
        cdef const char *at = text.at
        cdef sb_slice bundle = text
        while at < end:
            bundle = sb_next_bundle(&at, end)
            if bundle.size < text.size:
                self.push_short(SB_AD_BUNDLE, bundle, False)
            self.push_short(SB_AD_BUNDLE, sb_store_number(bundle), False)
            self.push_short(SB_AD_BUNDLE, sb_without_dot(bundle), False)
        return bundle.size == text.size

    cdef bint push_domains(self, sb_slice entry, bint blocks) except -1:
        """Add terms for a domain, or for each domain of a pasted list; return whether the entry
        contains only domains.

        With `blocks`, domains that occur within other text are blocked, too, and a pattern or an
        escaped spelling such as `shoes.*` or `shoes[.]example` blocks all domains.
        """
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part, host
        cdef bint any = False, all = True
        while at <= end:
            part = sb_next_part(&at, end, SB_PASTED)
            if part.size == 0:
                continue
            any = True
            host = sb_host_in(part)
            if host.size and (part.size == entry.size or sb_has_dot(host.at, host.at + host.size)):
                self.push_short(SB_AD_DOMAIN, host, True)
                continue
            all = False
            if blocks:
                self.push_hosts(part)
                if sb_is_pattern(part, SB_HOSTS):
                    self.text(SB_AD_DOMAIN, ANY, False)
        return any and all

    cdef int push_hosts(self, sb_slice text) except -1:
        """Add terms for the domains that occur in a text."""
        cdef const char *end = text.at + text.size
        cdef const char *at = text.at
        cdef sb_slice host
        while at < end:
            host = sb_next_host(&at, end)
            if sb_has_dot(host.at, host.at + host.size):
                self.push_short(SB_AD_DOMAIN, host, True)
        return 0

    cdef sb_slice unescaped(self, sb_slice entry, bint exact) except *:
        """Decode a percent-encoded entry of a restricting list, in lower case unless `exact`."""
        cdef Py_ssize_t size
        cdef bint folds = False
        cdef str text
        self.need_ink(entry.size)
        entry.size = sb_unescape(entry, self.ink)
        entry.at = self.written(entry.size)
        text = PyUnicode_DecodeUTF8(entry.at, entry.size, "replace")
        if not PyUnicode_IS_COMPACT_ASCII(text):
            self.foreign_left -= MAPPED_STEPS
            if exact:
                self.foreign_left -= len(text)
                entry.at = self.unusual(narrow(text), &folds, &size)
            else:
                entry.at = self.foreign(text, &size)
            entry.size = size
        return entry

    cdef str decoded(self, object url):
        """Percent-decode a URL up to where its host must have ended."""
        cdef Py_ssize_t size
        cdef str text = str(url)
        cdef sb_slice entry
        if "%" not in text:
            return text
        entry.at = self.encoded(text, &size)
        entry.size = size
        self.need_ink(size)
        size = sb_unescape(entry, self.ink)
        return PyUnicode_DecodeUTF8(self.written(size), min(size, LONGEST_URL), "replace")

    cdef bint push_language(self, Reader reader, uint32_t space, sb_slice tag) except -1:
        """Add a term for a language tag or its primary subtag; return whether it is a tag.

        Codes are replaced with current ones (reference.languages).
        """
        cdef size_t length = 0, i
        cdef char *written
        cdef PyObject *today = NULL
        if tag.size > SB_KEY_MAX:
            return False
        self.need_ink(tag.size)
        written = self.ink
        for i in range(tag.size):
            written[i] = c'-' if tag.at[i] == c'_' else tag.at[i]
            if c'A' <= written[i] <= c'Z':
                written[i] += 32
        while length < tag.size and c'a' <= written[length] <= c'z':
            length += 1
        if not 2 <= length <= 8 or length < tag.size and written[length] != c'-':
            return False
        self.written(tag.size)
        if length <= 3:
            today = PyDict_GetItem(
                reader.languages, PyUnicode_DecodeASCII(written, length, NULL))
        if today is not NULL:  # which has two letters
            written += length - TODAY
            memcpy(written, PyUnicode_DATA(<object>today), TODAY)
            tag.size -= length - TODAY
            length = TODAY
        self.push_text(space, written, length if space == SB_LANGUAGE else tag.size, False)
        return True

    cdef uint32_t masked(self, uint32_t space, object numbers, bint *any, str where) except? 0:
        """Return the bits of a list's numbers below SB_MASKED, and add terms for the others.

        No terms are added for the space SB_SPACES, and 0 is ignored. In a list of admitted numbers,
        any entry sets `any`. For blocked numbers `any` is NULL: an entry that is not a number may
        then stand for any of them.
        """
        cdef uint32_t bits = 0
        cdef int64_t number
        if filled(numbers):
            for item in <list>numbers:
                if item is None or is_zero(item):
                    continue
                if any is not NULL:
                    any[0] = True
                if not integer(item, &number):
                    self.note(where)
                    if any is NULL:  # blocked: it may be any of them
                        bits = ALL
                elif number < SB_MASKED:
                    bits |= 1u << number
                elif space != SB_SPACES:
                    self.push_number(space, number)
        return bits

    cdef dict by_dimension(self):
        """Return the values of the dimensions, in normal form."""
        cdef dict values = {}
        cdef sb_term *term
        cdef uint32_t i
        for i in range(self.count):
            term = self.terms + i
            if term.space < SB_FORMAT:
                if term.form == SB_NUMBER:
                    value = term.number
                else:
                    value = term.text[:term.size].decode()
                    value = value.lower() if term.form == SB_FOLDED else value
                values.setdefault(<int>term.space, []).append(value)
        return values


# -- the request -----------------------------------------------------------------------------------

cdef enum:
    MAX_ENTRIES = 1000  # of a list that does not restrict; restricting lists are read in full
    HOUR_MS = 3600000
    WEEK_HOURS = 168
    EPOCH_HOUR = 72  # 1 January 1970 was a Thursday
    NAME_SIZE = 2 * SB_KEY_MAX + 16  # of an id with its kind and scope

cdef uint32_t PERSONAL = 1u << SB_AUDIENCE | 1u << SB_PRODUCT

cdef str ACAT = "acat", WADOMAIN = "imp[].pmp.deals[].wadomain"  # of these spaces, they admit

# Number of a taxonomy in AdCOM's list -> its family, as in reference.taxonomies.
cdef uint8_t[10] FAMILIES = [0, 1, 2, 3, 4, 2, 2, 7, 8, 7]


cdef inline Py_ssize_t folded(char *out, const char *text, Py_ssize_t size) noexcept:
    """Write an advertising id as campaigns.persons.folded does; return its length."""
    cdef Py_ssize_t i, n = 0
    cdef char letter
    for i in range(size):
        letter = text[i]
        if 0 <= letter <= 0x20 or letter == c'-' or letter == c'{' or letter == c'}':
            continue
        out[n] = letter | 0x20 if c'A' <= letter <= c'Z' else letter
        n += 1
    return n


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


cdef inline bint is_word(sb_slice tag) noexcept:
    """Return whether a tag begins with more letters than a language code has."""
    return tag.size > 3 and sb_is_alphanumeric(tag.at[2]) and sb_is_alphanumeric(tag.at[3])


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class RequestReading:

    def __cinit__(self):
        self.terms = Terms()

    cdef int forget(self) except -1:
        """Release the request."""
        self.terms.forget()
        self.lookups = self.reader = None
        self.request = self.ssp = self.canonical = self.user = None
        self.country_code = self.system = self.browser = self.marker = None
        self.members = None
        return 0

    cdef int read(self, object lookups, Reader reader, object request, str ssp, str canonical,
                  int64_t now_ms, const Interest *interest) except -1:
        """Read an SSP's request at a time (UTC epoch ms)."""
        cdef Terms terms = self.terms
        cdef uint32_t used = interest.used
        self.lookups, self.reader = lookups, reader
        self.request = request
        self.ssp = ssp
        self.canonical = canonical
        self.interest = interest[0]
        self.user = None
        self.is_restricted = False
        memset(&self.asker, 0, sizeof(self.asker))
        self.asker.now_ms = now_ms
        device = reader.child(request, BIDREQUEST_DEVICE, DEVICE)
        user = reader.child(request, BIDREQUEST_USER, USER)
        site = reader.child(request, BIDREQUEST_SITE, SITE)
        app = reader.child(request, BIDREQUEST_APP, APP)
        dooh = reader.child(request, BIDREQUEST_DOOH, DOOH)
        terms.clear()
        self.read_auction(reader.get(request, BIDREQUEST_ID))
        if used >> SB_SSP & 1:
            terms.begin(SB_SSP)
            terms.text(SB_SSP, self.ssp, False)
            if self.canonical != self.ssp:
                terms.text(SB_SSP, self.canonical, False)
            terms.end(SB_SSP)
        own = reader.child(device, DEVICE_GEO, GEO)
        named = self.read_place(own, device, user)
        self.read_user_data(named, own, device, user)
        if device is not None:
            self.read_device(device)
        terms.begin(SB_INVENTORY)
        if used >> SB_INVENTORY & 1:
            if site is not None:
                terms.text(SB_INVENTORY, "site", False)
            if app is not None:
                terms.text(SB_INVENTORY, "app", False)
            if dooh is not None:
                terms.text(SB_INVENTORY, "dooh", False)
        terms.end(SB_INVENTORY)
        self.read_publication(site, app, dooh)
        terms.begin(SB_HOUR)
        if used >> SB_HOUR & 1:
            terms.push_number(
                SB_HOUR, (self.asker.now_ms // HOUR_MS + EPOCH_HOUR) % WEEK_HOURS)
        terms.end(SB_HOUR)
        self.read_categories_of_ads(request)
        terms.begin(BLOCKED)
        self.asker.has_bcat = self.ad_categories(reader.get(request, BIDREQUEST_BCAT), "bcat")
        terms.entries(reader, SB_AD_DOMAIN, reader.get(request, BIDREQUEST_BADV), "badv")
        self.read_blocked_by_impressions(reader.get(request, BIDREQUEST_IMP))
        terms.entries(reader, SB_AD_BUNDLE, reader.get(request, BIDREQUEST_BAPP), "bapp")
        self.asker.blocks_bundles = terms.has_pattern
        terms.entries(reader, SB_SEAT, reader.get(request, BIDREQUEST_BSEAT), "bseat")
        self.asker.blocks_seats = terms.has_pattern
        terms.end(BLOCKED)
        terms.begin(SEATS)
        self.asker.has_wseat = terms.entries(
            reader, SB_SEAT, reader.get(request, BIDREQUEST_WSEAT), "wseat")
        terms.end(SEATS)
        terms.begin(LANGUAGES)
        self.asker.has_languages = terms.entries(
            reader, SB_AD_LANGUAGE, reader.get(request, BIDREQUEST_WLANG), "wlang")
        self.asker.has_languages |= terms.entries(
            reader, SB_AD_LANGUAGE, reader.get(request, BIDREQUEST_WLANGB), "wlangb")
        terms.end(LANGUAGES)
        self.read_dsa(reader.child(request, BIDREQUEST_REGS, REGS))
        return 0

    cdef int read_blocked_by_impressions(self, object imps) except -1:
        """Read what impressions block, which then holds for all of them: only requests by other
        rules than OpenRTB's have it."""
        cdef Reader reader = self.reader
        if not filled(imps):
            return 0
        for imp in <list>imps:
            if reader.checked(imp, IMP) is None:
                continue
            self.asker.has_bcat |= self.ad_categories(reader.get(imp, IMP_BCAT), "imp[].bcat")
            self.terms.entries(reader, SB_AD_DOMAIN, reader.get(imp, IMP_BADV), "imp[].badv")
        return 0

    cdef int read_dsa(self, object regs) except -1:
        """Read the Digital Services Act's requirements for a bid, also from OpenRTB 2.5's `ext`.

        If both are present, the stricter one counts, as in `bidding.lookups.dsa_of`.
        """
        cdef Reader reader = self.reader
        cdef int64_t number
        if regs is None:
            return 0
        dsa = reader.child(regs, REGS_DSA, DSA)
        other = reader.child(reader.child(regs, REGS_EXT, REGSEXT), REGSEXT_DSA, DSA)
        if self.requirement(other) > self.requirement(dsa):
            dsa, other = other, dsa
        self.asker.asks_dsa = self.requirement(dsa) >= 1
        self.asker.needs_dsa = self.requirement(dsa) >= 2
        for place in (dsa, other):
            if place is not None and integer(reader.get(place, DSA_PUBRENDER), &number):
                self.asker.renders = SB_RENDERS if number == 0 else SB_LEAVES if number == 2 else 0
                break
        return 0

    cdef int requirement(self, object dsa) except -1:
        """Return `dsarequired` if it is 1, 2 or 3, else 0."""
        cdef int64_t number
        if dsa is None or not integer(self.reader.get(dsa, DSA_DSAREQUIRED), &number):
            return 0
        return number if number <= 3 else 0

    cdef int read_categories_of_ads(self, object request) except -1:
        """Read the taxonomy, the only categories that may bid, and the marker of mapped ones."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef int64_t number = 0
        cattax = reader.get(request, BIDREQUEST_CATTAX)
        self.asker.family = 1
        if cattax is not None and integer(cattax, &number) and number:
            self.asker.family = FAMILIES[number] if number < <int64_t>sizeof(FAMILIES) else 0
        if self.asker.family == 0:
            self.marker = f"{number}:"
        elif self.interest.families & ~(1u << self.asker.family):
            self.marker = f"{self.asker.family}:"
        else:
            self.marker = None  # there are no others
        terms.begin(CATEGORIES)
        self.asker.has_acat = self.ad_categories(reader.get(request, BIDREQUEST_ACAT), ACAT)
        terms.end(CATEGORIES)
        terms.begin(MARKER)
        if self.marker is not None:
            terms.text(SB_AD_CATEGORY, self.marker, False)
        terms.end(MARKER)
        return 0

    cdef bint ad_categories(self, object texts, str where) except -1:
        """Add terms for categories in the request's taxonomy; return whether there are any.

        A category missing from its taxonomy is noted; if blocked, it might be any category. But in
        the Content Taxonomy 1.0, a missing category below a known one is blocked as that category.
        """
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef bint any = False
        cdef uint32_t flags, unmapped = 0
        cdef sb_slice entry
        cdef Py_ssize_t size
        cdef PyObject *found
        cdef dict known = None
        if not filled(texts):
            return False
        if self.asker.family != 1:
            known = reader.categories.get(self.asker.family)
        for text in <list>texts:
            if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
                entry.at = <const char *>PyUnicode_DATA(text)
                entry.size = PyUnicode_GET_LENGTH(text)
                if entry.size == 0:
                    continue
                if self.asker.family == 1:
                    flags = reader.flags_of_first(sb_first(entry.at, entry.size))
                    if flags:
                        any = True
                        unmapped |= flags
                        terms.push_text(SB_AD_CATEGORY, entry.at, entry.size, False)
                        continue
            elif text is None:
                continue
            if known is not None:
                found = PyDict_GetItem(known, text)
                if found is not NULL:
                    any = True
                    self.push_known(<object>found, where is not ACAT)
                    continue
            if not PyUnicode_CheckExact(text) or not PyUnicode_IS_COMPACT_ASCII(text):
                entry.at = terms.foreign(text, &size)
                entry.size = size
                if terms.has_too_much():
                    return True
            any |= self.category_parts(entry, where)
        if where is not ACAT:
            self.asker.unmapped |= unmapped
        return any

    cdef int push_known(self, tuple entry, bint blocks) except -1:
        """Add a term for a category of `reference.taxonomies.listed`."""
        if blocks:
            self.asker.unmapped |= <uint32_t>entry[1]
        return self.terms.text(SB_AD_CATEGORY, entry[0], False)

    cdef bint category_parts(self, sb_slice entry, str where) except -1:
        """Add terms for the parts of a comma-separated entry; return whether there are any."""
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part
        cdef bint any = False
        if self.asker.family == 0:  # a vendor's category may contain a comma
            part = sb_trimmed(at, end)
            if part.size:
                any = True
                self.push_other(part, where)
        while at <= end:
            part = sb_next_part(&at, end, SB_CATEGORIES)
            if part.size:
                any = True
                if self.asker.family == 1:
                    self.push_first(part, where)
                else:
                    self.push_other(part, where)
        return any

    cdef int push_first(self, sb_slice entry, str where) except -1:
        """Add a term for a category of the Content Taxonomy 1.0, however it is spelled."""
        cdef char[SB_FIRST_SIZE] plain
        cdef Py_ssize_t size = sb_spell_category(entry, plain, SB_FIRST_SIZE)
        cdef int number = sb_first(plain, size)
        cdef uint32_t flags = self.reader.flags_of_first(number)
        if flags == 0:
            self.terms.note(where)
            if where is not ACAT and number > 0:  # a subcategory is part of its category
                flags = self.reader.flags_of_first(number - number % SB_MAX_SECOND)
                size = <const char *>memchr(plain, c'-', size) - plain if flags else 0
        if flags:
            if where is not ACAT:
                self.asker.unmapped |= flags
            self.terms.push_copy(SB_AD_CATEGORY, plain, size, False)
        elif where is not ACAT:
            self.asker.blocks_unknown = True
        return 0

    cdef int push_other(self, sb_slice entry, str where) except -1:
        """Add a term for a category outside the Content Taxonomy 1.0, however it is spelled."""
        cdef str text
        cdef dict known
        cdef PyObject *found
        if entry.size > SB_KEY_MAX:
            return 0
        text = PyUnicode_DecodeUTF8(entry.at, entry.size, "replace")
        known = self.reader.categories.get(self.asker.family)
        if known is None:  # a vendor's own
            text = f"{self.marker}{text.lower()}"
            self.terms.keep(text)
            return self.terms.text(SB_AD_CATEGORY, text, False)
        found = PyDict_GetItem(known, "".join(text.lower().split()))
        if found is not NULL:
            return self.push_known(<object>found, where is not ACAT)
        self.terms.note(where)
        if where is not ACAT:
            self.asker.blocks_unknown = True
        return 0

    cdef int read_auction(self, object id) except -1:
        cdef Py_ssize_t size
        cdef const char *raw = PyUnicode_AsUTF8AndSize(id, &size)
        self.asker.auction = sb_hash(0, raw, size)
        return 0

    cdef object read_place(self, object own, object device, object user):
        """Read country, region and city; return the user's geo object if it named the country.

        Each geo value is read from the object that named the country. Values that it lacks are read
        from `own`, the device's.
        """
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        named = None
        country = self.country(own)
        if country is None:
            geo = reader.child(user, USER_GEO, GEO)
            country = self.country(geo)
            if country is not None:
                named = geo
            elif device is not None and used & (1u << SB_COUNTRY | 1u << SB_REGION):
                country = self.lookups.country_of_address(
                    reader.get(device, DEVICE_IP), reader.get(device, DEVICE_IPV6))
        terms.begin(SB_COUNTRY)
        if country is not None:
            self.country_code = country
            terms.text(SB_COUNTRY, country, False)
        terms.end(SB_COUNTRY)
        terms.begin(SB_REGION)
        if country is not None and used >> SB_REGION & 1:
            if named is not None:
                self.read_region(country, reader.get(named, GEO_REGION))
            if own is not None and terms.count == terms.begins[SB_REGION]:
                self.read_region(country, reader.get(own, GEO_REGION))
        terms.end(SB_REGION)
        terms.begin(SB_CITY)
        if used >> SB_CITY & 1:
            self.read_name(SB_CITY, named, own, GEO_CITY)
        terms.end(SB_CITY)
        return named

    cdef int read_name(self, uint32_t dimension, object named, object own, int field) except -1:
        """Read a city or postal code; see `read_place`."""
        cdef Terms terms = self.terms
        if named is not None:
            terms.trimmed(dimension, self.reader.get(named, field), True)
        if own is not None and terms.count == terms.begins[dimension]:
            terms.trimmed(dimension, self.reader.get(own, field), True)
        return 0

    cdef bint locate(self, object geo) except -1:
        """Read a geo object's point; return whether it has one."""
        cdef double lat, lon
        if geo is None:
            return False
        at_lat, at_lon = self.reader.get(geo, GEO_LAT), self.reader.get(geo, GEO_LON)
        if not PyFloat_CheckExact(at_lat) or not PyFloat_CheckExact(at_lon):
            return False
        lat, lon = PyFloat_AS_DOUBLE(at_lat), PyFloat_AS_DOUBLE(at_lon)
        if not (-90 <= lat <= 90 and -180 <= lon <= 180):
            return False
        self.asker.lat, self.asker.lon = lat, lon
        return True

    cdef object country(self, object geo):
        """Return the country (alpha-3) named by a geo object, or None."""
        if geo is None:
            return None
        code = self.reader.get(geo, GEO_COUNTRY)
        if not is_given(code):
            return None
        return recall(self.reader.countries, text_of(code))

    cdef int read_region(self, str country, object code) except -1:
        """Read a region in normal form (campaigns.vocabulary.region), such as `usa-ca`."""
        cdef Terms terms = self.terms
        cdef Py_ssize_t length
        cdef const char *raw
        cdef sb_slice part
        if not is_given(code) or is_too_long(code):
            return 0
        if PyUnicode_CheckExact(code) and PyUnicode_IS_COMPACT_ASCII(code):
            raw = <const char *>PyUnicode_DATA(code)
            part = sb_trimmed(raw, raw + PyUnicode_GET_LENGTH(code))
            length = PyUnicode_GET_LENGTH(country)
            if part.size == 0:
                return 0
            if (part.size + length + 1 <= sizeof(self.region_key)
                    and memchr(part.at, c'-', part.size) is NULL):
                memcpy(self.region_key, PyUnicode_DATA(country), length)
                self.region_key[length] = c'-'
                memcpy(self.region_key + length + 1, part.at, part.size)
                terms.push_text(SB_REGION, self.region_key, length + 1 + part.size, True)
                return 0
        region = self.lookups.region(country, str(code))
        if region is not None:
            terms.keep(region)
            terms.text(SB_REGION, region, False)
        return 0

    cdef int read_user_data(self, object named, object own, object device, object user) except -1:
        """Read the fields whose use the request's privacy signals must permit (contract 3)."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        cdef bint located = self.locate(named) or self.locate(own)
        cdef bint has_postal = used >> SB_POSTAL & 1 and (
            named is not None and reader.get(named, GEO_ZIP) is not None
            or own is not None and reader.get(own, GEO_ZIP) is not None)
        data = None
        terms.begin(SB_POSTAL)
        terms.end(SB_POSTAL)
        terms.begin(SB_SEGMENT)
        terms.end(SB_SEGMENT)
        if user is not None and used >> SB_SEGMENT & 1:
            data = reader.get(user, USER_DATA)
        if used & PERSONAL and reader.book is not None:
            self.members = reader.book.current
        if (not located and not has_postal and data is None and not self.interest.has_caps
                and self.members is None):
            return 0
        if not self.permits_user_data():
            return 0
        self.asker.located = located
        if self.members is not None:
            self.read_persons(device, user)
        if self.interest.has_caps:
            self.user = self.lookups.person(self.request, self.canonical)
            self.asker.recognised = self.user is not None
        if has_postal:
            terms.begin(SB_POSTAL)
            self.read_name(SB_POSTAL, named, own, GEO_ZIP)
            terms.end(SB_POSTAL)
        terms.begin(SB_SEGMENT)
        for item in first(data, MAX_ENTRIES):
            segments = reader.get(reader.checked(item, DATA), DATA_SEGMENT)
            for segment in first(segments, MAX_ENTRIES):
                terms.trimmed(SB_SEGMENT, reader.get(
                    reader.checked(segment, SEGMENT), SEGMENT_ID), False)
        terms.end(SB_SEGMENT)
        return 0

    cdef int read_persons(self, object device, object user) except -1:
        """Read the audiences of the request's persons, and the products that must not advertise to
        any of them. With limited tracking, ignore the audiences."""
        cdef Reader reader = self.reader
        cdef Terms terms = self.terms
        cdef list audiences = [], products = []
        if device is not None:
            self.look_up(b"ifa", None, reader.get(device, DEVICE_IFA), audiences, products)
        if user is not None:
            given = reader.get(user, USER_ID)
            self.look_up(b"user", self.canonical, given, audiences, products)
            if reader.former_ids:
                for former in <tuple>reader.former_ids.get(self.ssp, ()):
                    self.look_up(b"user", former, given, audiences, products)
            self.look_up(b"buyeruid", None, reader.get(user, USER_BUYERUID), audiences, products)
            self.look_up_eids(reader.get(user, USER_EIDS), audiences, products)
            ext = reader.child(user, USER_EXT, USEREXT)
            if ext is not None:
                self.look_up_eids(reader.get(ext, USEREXT_EIDS), audiences, products)
        if device is not None and (is_one(reader.get(device, DEVICE_LMT))
                                   or is_one(reader.get(device, DEVICE_DNT))):
            audiences = []
        terms.begin(SB_AUDIENCE)
        for name in audiences:
            terms.text(SB_AUDIENCE, name, False)
        terms.end(SB_AUDIENCE)
        terms.begin(SB_PRODUCT)
        for name in products:
            terms.text(SB_PRODUCT, name, False)
        terms.end(SB_PRODUCT)
        self.is_restricted = bool(products)
        return 0

    cdef int look_up_eids(self, object eids, list audiences, list products) except -1:
        cdef Reader reader = self.reader
        for item in first(eids, MAX_ENTRIES):
            eid = reader.checked(item, EID)
            if eid is None:
                continue
            source = reader.get(eid, EID_SOURCE)
            for uid in first(reader.get(eid, EID_UIDS), MAX_ENTRIES):
                if reader.checked(uid, UID) is not None:
                    self.look_up(b"eid", source, reader.get(uid, UID_ID), audiences, products)
        return 0

    cdef int look_up(self, const char *kind, object scope, object id, list audiences,
                     list products) except -1:
        """Look up an id under its hash."""
        cdef uint64_t found
        if not self.member(self.members.key, kind, scope, id, &found):
            return 0
        return self.members.find(found, self.asker.now_ms, audiences, products)

    cdef bint member(self, bytes key, const char *kind, object scope, object id,
                     uint64_t *found) except -1:
        """Hash an id as campaigns.persons.PersonKey.member does; return False if it is absent."""
        cdef char[NAME_SIZE] name
        cdef Py_ssize_t size, start = strlen(kind) + 1
        cdef const char *text
        cdef bint folds = kind[0] == c'i'
        if not is_given(id) or is_too_long(id):
            return False
        memcpy(name, kind, start)
        if scope is not None:
            scope = text_of(scope)  # may be a new text, so keep it while it is copied
            if PyUnicode_GET_LENGTH(scope) > SB_KEY_MAX:
                return False
            if kind[0] == c'e':
                scope = scope.lower()  # a domain
            text = self.terms.encoded(scope, &size)
            if size > SB_KEY_MAX:
                return False
            memcpy(name + start, text, size)
            start += size
        name[start] = 0
        start += 1
        written = text_of(id)
        if folds and not PyUnicode_IS_COMPACT_ASCII(written):
            written = written.lower()
        text = self.terms.encoded(written, &size)
        if size == 0 or size > SB_KEY_MAX:
            return False
        if folds:
            size = folded(name + start, text, size)
        else:
            memcpy(name + start, text, size)
        found[0] = sb_person(PyBytes_AS_STRING(key), name, start + size)
        return True

    cdef uint64_t clicker(self, bytes key) except? 0:
        """Return the hash that stands for the person in click ids; 0 if no id identifies a person.

        The first id that identifies a person is hashed; the device's id comes first, since it is
        the same at every SSP. Limited tracking or a request to forget does not matter: a person who
        clicked may opt out later, and a forgotten person's click id serves no other purpose.
        """
        cdef Reader reader = self.reader
        cdef uint64_t found = 0
        device = reader.child(self.request, BIDREQUEST_DEVICE, DEVICE)
        user = reader.child(self.request, BIDREQUEST_USER, USER)
        if device is not None and self.is_clicker(
                key, b"ifa", None, reader.get(device, DEVICE_IFA), &found) or user is None:
            return found
        if (self.is_clicker(key, b"user", self.canonical, reader.get(user, USER_ID), &found)
                or self.is_clicker(key, b"buyeruid", None, reader.get(user, USER_BUYERUID), &found)
                or self.is_among(key, reader.get(user, USER_EIDS), &found)):
            return found
        ext = reader.child(user, USER_EXT, USEREXT)
        if ext is not None:
            self.is_among(key, reader.get(ext, USEREXT_EIDS), &found)
        return found

    cdef bint is_clicker(self, bytes key, const char *kind, object scope, object id,
                         uint64_t *found) except -1:
        """Hash an id; return whether it identifies somebody."""
        if not self.member(key, kind, scope, id, found):
            return False
        written = text_of(id)
        if not (PyUnicode_IS_COMPACT_ASCII(written)
                and sb_is_plain_id(PyUnicode_DATA(written), PyUnicode_GET_LENGTH(written))) \
                and self.lookups.is_placeholder(written):
            found[0] = 0
            return False
        return True

    cdef bint is_among(self, bytes key, object eids, uint64_t *found) except -1:
        """Hash the first extended id that identifies somebody; return whether there is one."""
        cdef Reader reader = self.reader
        for item in first(eids, MAX_ENTRIES):
            eid = reader.checked(item, EID)
            if eid is None:
                continue
            source = reader.get(eid, EID_SOURCE)
            for uid in first(reader.get(eid, EID_UIDS), MAX_ENTRIES):
                if reader.checked(uid, UID) is not None \
                        and self.is_clicker(key, b"eid", source, reader.get(uid, UID_ID), found):
                    return True
        return False

    cdef bint permits_user_data(self) except -1:
        """Return whether the privacy signals permit the use of user data.

        `bidding.privacy` is asked only if a consent string or a GPP string decides; the memo has
        the verdict for a US Privacy string alone.
        """
        cdef Reader reader = self.reader
        regs = reader.child(self.request, BIDREQUEST_REGS, REGS)
        if regs is None:
            return True
        if (is_one(reader.get(regs, REGS_GDPR)) or filled(reader.get(regs, REGS_GPP_SID))
                or is_given(reader.get(regs, REGS_GPP))):
            return self.lookups.may_use_user_data(self.request)
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
            return self.lookups.may_use_user_data(self.request)
        if is_one(reader.get(ext, REGSEXT_COPPA)) or is_one(reader.get(ext, REGSEXT_GPC)):
            return False
        text = reader.get(ext, REGSEXT_US_PRIVACY)
        return not is_given(text) or not recall(reader.opt_outs, text)

    cdef int read_device(self, object device) except -1:
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        os = browser = None
        if used >> SB_DEVICE_TYPE & 1:
            terms.begin(SB_DEVICE_TYPE)
            terms.number(SB_DEVICE_TYPE, reader.get(device, DEVICE_DEVICETYPE))
            terms.end(SB_DEVICE_TYPE)
        if used >> SB_CONNECTION & 1:
            terms.begin(SB_CONNECTION)
            terms.number(SB_CONNECTION, reader.get(device, DEVICE_CONNECTIONTYPE))
            terms.end(SB_CONNECTION)
        if used & (1u << SB_OS | 1u << SB_BROWSER):
            hints = reader.get(device, DEVICE_SUA)
            if hints is not None:
                os, browser = self.lookups.hinted(hints)
            ext = reader.child(device, DEVICE_EXT, DEVICEEXT)
            if os is None and browser is None and ext is not None:
                hints = reader.get(ext, DEVICEEXT_SUA)
                if hints is not None:
                    os, browser = self.lookups.hinted(hints)
            if os is None and used >> SB_OS & 1:
                os = reader.get(device, DEVICE_OS)
                os = recall(reader.systems, text_of(os)) if is_given(os) else None
            agent = reader.get(device, DEVICE_UA)
            if is_given(agent) and (os is None or browser is None and used >> SB_BROWSER & 1):
                system, family = recall(reader.agents, text_of(agent))
                os = os or system
                browser = browser or family
            terms.begin(SB_OS)
            if os is not None and used >> SB_OS & 1:
                self.system = os
                terms.text(SB_OS, os, False)
            terms.end(SB_OS)
            terms.begin(SB_BROWSER)
            if browser is not None:
                self.browser = browser
                terms.text(SB_BROWSER, browser, False)
            terms.end(SB_BROWSER)
        if used >> SB_CARRIER & 1:
            terms.begin(SB_CARRIER)
            terms.trimmed(SB_CARRIER, reader.get(device, DEVICE_CARRIER), True)
            terms.end(SB_CARRIER)
        if used >> SB_LANGUAGE & 1:
            terms.begin(SB_LANGUAGE)
            if not self.read_language(reader.get(device, DEVICE_LANGUAGE)):
                self.read_language(reader.get(device, DEVICE_LANGB))
            terms.end(SB_LANGUAGE)
        return 0

    cdef bint read_language(self, object language) except -1:
        """Read the primary subtag, as campaigns.vocabulary.primary_subtag does; return whether
        there is one."""
        cdef Terms terms = self.terms
        cdef Py_ssize_t size
        cdef sb_slice tag
        if not PyUnicode_Check(language) or is_too_long(language):
            return False
        tag.at = terms.encoded(language, &size)
        tag.size = size
        if sb_is_todays(tag):
            terms.push_text(SB_LANGUAGE, tag.at, 2, True)
            return True
        tag = sb_trimmed(tag.at, tag.at + size)
        if is_word(tag) and self.lookups.is_placeholder(language):
            return False
        return terms.push_language(self.reader, SB_LANGUAGE, tag)

    cdef int read_publication(self, object site, object app, object dooh) except -1:
        """Read domain, bundle, publishers and categories."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        terms.begin(SB_DOMAIN)
        if site is not None and used >> SB_DOMAIN & 1:
            self.read_domain(reader.get(site, SITE_DOMAIN), reader.get(site, SITE_PAGE))
        terms.end(SB_DOMAIN)
        terms.begin(SB_BUNDLE)
        if app is not None and used >> SB_BUNDLE & 1:
            terms.trimmed(SB_BUNDLE, reader.get(app, APP_BUNDLE), False)
        terms.end(SB_BUNDLE)
        terms.begin(SB_PUBLISHER)
        if used >> SB_PUBLISHER & 1:
            self.read_publisher(site, SITE_PUBLISHER)
            self.read_publisher(app, APP_PUBLISHER)
            self.read_publisher(dooh, DOOH_PUBLISHER)
        terms.end(SB_PUBLISHER)
        terms.begin(SB_CATEGORY)
        if used >> SB_CATEGORY & 1:
            if site is not None:
                self.read_categories(reader.get(site, SITE_CAT))
                self.read_categories(reader.get(site, SITE_SECTIONCAT))
                self.read_categories(reader.get(site, SITE_PAGECAT))
            if app is not None:
                self.read_categories(reader.get(app, APP_CAT))
                self.read_categories(reader.get(app, APP_SECTIONCAT))
                self.read_categories(reader.get(app, APP_PAGECAT))
        terms.end(SB_CATEGORY)
        return 0

    cdef int read_domain(self, object domain, object page) except -1:
        """Read a site's domain and its parents.

        A domain without a dot may be a placeholder, so a page's host with a dot is preferred. If a
        text is neither a domain nor a URL, the domains that occur in it are read as well.
        """
        host = self.host(domain)
        if host is None or "." not in <str>host:
            other = self.host(page)
            if host is None:
                self.read_domains_in(domain)
            if other is None:
                self.read_domains_in(page)
            if host is None or other is not None and "." in <str>other:
                host = other
        if host is not None:
            self.push_site(host)
        return 0

    cdef int read_domains_in(self, object text) except -1:
        """Read the domains in a text that is not itself one, such as a pasted list."""
        if not is_given(text):
            return 0
        text = self.terms.decoded(text)
        if not is_too_long(text):
            for host in self.lookups.hosts_in(text):
                self.terms.keep(host)
                self.push_site(host)
        return 0

    cdef int push_site(self, object host) except -1:
        """Add terms for a site's domain and its parents."""
        cdef Terms terms = self.terms
        cdef Py_ssize_t size, i
        cdef const char *raw = terms.encoded(host, &size)
        while sb_has_www(raw, size):
            raw += 4
            size -= 4
        for i in range(size):
            if i == 0 or raw[i - 1] == c'.':
                terms.push_text(SB_DOMAIN, raw + i, size - i, True)
        return 0

    cdef object host(self, object url):
        """Return the host of a URL or a bare domain; None if there is none.

        Anything but a bare ASCII host name is left to `campaigns.domains.host`.
        """
        if not is_given(url):
            return None
        if PyUnicode_CheckExact(url) and is_plain_host(url):
            return url
        host = self.lookups.host(str(url))
        if host is None and "%" in str(url):
            host = self.lookups.host(self.terms.decoded(url))
        if host is None or is_too_long(host):
            return None
        self.terms.keep(host)
        return host

    cdef int read_publisher(self, object owner, int field) except -1:
        cdef Terms terms = self.terms
        publisher = self.reader.child(owner, field, PUBLISHER)
        if publisher is not None:
            terms.trimmed(SB_PUBLISHER, self.reader.get(publisher, PUBLISHER_ID), False)
        return 0

    cdef int read_categories(self, object categories) except -1:
        """Read each category and its IAB parent, however it is spelled (vocabulary.category)."""
        cdef Terms terms = self.terms
        cdef sb_slice entry
        cdef Py_ssize_t size
        cdef uint32_t left = MAX_ENTRIES
        if not filled(categories):
            return 0
        for category in <list>categories:
            if left == 0:
                break
            if not is_given(category):
                continue
            if PyUnicode_CheckExact(category) and PyUnicode_IS_COMPACT_ASCII(category):
                entry.at = <const char *>PyUnicode_DATA(category)
                entry.size = PyUnicode_GET_LENGTH(category)
                if sb_first(entry.at, entry.size) >= 0:
                    self.push_category(entry)
                    left -= 1
                    continue
            else:
                if PyUnicode_Check(category):
                    category = terms.mapped(category).upper()
                    terms.keep(category)
                    entry.at = terms.encoded(category, &size)
                else:
                    entry.at = terms.foreign(category, &size)
                entry.size = size
            self.read_category_parts(entry, &left)
        return 0

    cdef int read_category_parts(self, sb_slice entry, uint32_t *left) except -1:
        """Read an entry that may be one category, or a list of several."""
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part, whole = sb_trimmed(at, end)
        self.push_spelled(whole)
        while at <= end and left[0]:
            part = sb_next_part(&at, end, SB_CATEGORIES)
            if part.size:
                left[0] -= 1
                if part.size < whole.size:
                    self.push_spelled(part)
        return 0

    cdef int push_spelled(self, sb_slice category) except -1:
        cdef Terms terms = self.terms
        if category.size > SB_KEY_MAX:
            return 0
        terms.need_ink(category.size)
        category.size = sb_spell_category(category, terms.ink, category.size)
        category.at = terms.written(category.size)
        return self.push_category(category) if category.size else 0

    cdef int push_category(self, sb_slice category) except -1:
        """Add terms for a category in its normal form, and for its parent."""
        cdef const char *dash = <const char *>memchr(category.at, c'-', category.size)
        self.terms.push_text(SB_CATEGORY, category.at, category.size, False)
        if dash is not NULL:
            self.terms.push_text(SB_CATEGORY, category.at, dash - category.at, False)
        return 0


# -- an impression ---------------------------------------------------------------------------------

cdef enum:
    MAX_FORMATS = 100  # of a banner
    MAX_DEALS = 1000
    MAX_SIDE = 0xffffff  # pixels
    UNKNOWN_MODE = 1 << 16  # a flag that no creative has

cdef uint32_t NO_DURATION = 0xffffffff
cdef double MICROS = 1e6
cdef double EXACT_USD = 1e9  # below, a product with MICROS is exact enough; see reference.rates
cdef int64_t UNREACHABLE = 1LL << 62  # micro-USD, beyond any price


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class ImpressionReading:

    def __cinit__(self):
        self.terms = Terms()

    def __dealloc__(self):
        PyMem_Free(self.asked.sizes)
        PyMem_Free(self.asked.durations)
        PyMem_Free(self.asked.deals)
        PyMem_Free(self.asked.spans)

    cdef int forget(self) except -1:
        """Release the request."""
        self.terms.forget()
        self.lookups = self.reader = None
        self.native = None
        return 0

    cdef void clear(self) noexcept:
        """Clear the last impression, keeping the memory of its lists."""
        cdef Asked asked
        memset(&asked, 0, sizeof(asked))
        asked.sizes = self.asked.sizes
        asked.durations = self.asked.durations
        asked.deals = self.asked.deals
        asked.spans = self.asked.spans
        self.asked = asked

    cdef bint read(self, object imp, list rivals) except -1:
        """Read an impression; return whether its floor can be converted to the bids' currency.

        `rivals`: advertisers that must not win it, in the form of `Index.advertiser`, or None.
        """
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        self.clear()
        terms.clear()
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
            self.native = self.lookups.native_request(native)
            asked.native = self.native is not None
            asked.native_kinds = 0 if self.native is None else self.native.required_kinds
        terms.begin(SB_FORMAT)
        if banner is not None:
            self.read_sizes(banner)
        asked.video.present = video is not None
        asked.audio.present = audio is not None
        if asked.video.present:
            terms.push_number(SB_FORMAT, <uint64_t>SB_VIDEO << 56)
        if asked.audio.present:
            terms.push_number(SB_FORMAT, <uint64_t>SB_AUDIO << 56)
        if asked.native:
            terms.push_number(SB_FORMAT, <uint64_t>SB_NATIVE << 56)
        terms.end(SB_FORMAT)
        terms.begin(SB_POSITION)
        if banner is not None:
            terms.number(SB_POSITION, reader.get(banner, BANNER_POS))
        if video is not None:
            terms.number(SB_POSITION, reader.get(video, VIDEO_POS))
        terms.end(SB_POSITION)
        if self.used & (1u << SB_PLACEMENT | 1u << SB_REWARDED | 1u << SB_INTERSTITIAL):
            self.read_placement(imp, video, native)
        terms.begin(ASKED)
        if banner is not None:
            asked.attributes[SB_BANNER] = terms.masked(
                SB_BANNER_ATTRIBUTE, reader.get(banner, BANNER_BATTR), NULL, "imp[].banner.battr")
            asked.types = terms.masked(
                SB_SPACES, reader.get(banner, BANNER_BTYPE), NULL, "imp[].banner.btype")
            asked.apis[SB_BANNER] = bits(reader.get(banner, BANNER_API))
            asked.has_mimes = terms.entries(
                reader, SB_BANNER_MIME, reader.get(banner, BANNER_MIMES), "imp[].banner.mimes")
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
            asked.attributes[SB_NATIVE] = terms.masked(
                SB_NATIVE_ATTRIBUTE, reader.get(native, NATIVE_BATTR), NULL, "imp[].native.battr")
            asked.apis[SB_NATIVE] = bits(reader.get(native, NATIVE_API))
        terms.end(ASKED)
        terms.begin(SB_DEAL)
        terms.end(SB_DEAL)
        if pmp is not None:
            asked.private = is_one(reader.get(pmp, PMP_PRIVATE_AUCTION))
            if self.used >> SB_DEAL & 1:
                self.read_deals(reader.get(pmp, PMP_DEALS))
        terms.begin(RIVALS)
        if rivals is not None:
            terms.texts(SB_AD_DOMAIN, rivals)
        terms.end(RIVALS)
        return True

    cdef int read_placement(self, object imp, object video, object native) except -1:
        """Read placement, reward and interstitial; the last two default to no."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef int64_t number
        terms.begin(SB_PLACEMENT)
        if video is not None:
            placement = reader.get(video, VIDEO_PLCMT)
            if placement is None or not integer(placement, &number) or number == 0:
                placement = reader.get(video, VIDEO_PLACEMENT)  # as of 2.5
            terms.number(SB_PLACEMENT, placement)
        if native is not None:
            self.read_native_placement(reader.get(native, NATIVE_PLCMTTYPE))
            if self.native is not None:
                self.read_native_placement(self.native.plcmttype)
        terms.end(SB_PLACEMENT)
        terms.begin(SB_REWARDED)
        terms.push_number(SB_REWARDED, is_one(self.rewarded(imp)))
        terms.end(SB_REWARDED)
        terms.begin(SB_INTERSTITIAL)
        terms.push_number(SB_INTERSTITIAL, is_one(reader.get(imp, IMP_INSTL)))
        terms.end(SB_INTERSTITIAL)
        return 0

    cdef int read_native_placement(self, object plcmttype) except -1:
        cdef int64_t number
        if plcmttype is not None and integer(plcmttype, &number):
            placement = f"n{number}"
            self.terms.keep(placement)
            self.terms.text(SB_PLACEMENT, placement, False)
        return 0

    cdef object rewarded(self, object imp):
        """Return the reward flag in the field of OpenRTB 2.6, 2.5 or Prebid Server."""
        cdef Reader reader = self.reader
        flag = reader.get(imp, IMP_RWDD)
        if flag is None:
            ext = reader.child(imp, IMP_EXT, IMPEXT)
            if ext is not None:
                flag = reader.get(ext, IMPEXT_RWDD)
                prebid = reader.child(ext, IMPEXT_PREBID, PREBIDEXT)
                if flag is None and prebid is not None:
                    flag = reader.get(prebid, PREBIDEXT_RWDD)
        return flag

    cdef int read_sizes(self, object banner) except -1:
        cdef Reader reader = self.reader
        for size in first(reader.get(banner, BANNER_FORMAT), MAX_FORMATS):
            reader.checked(size, FORMAT)
            self.size(reader.get(size, FORMAT_W), reader.get(size, FORMAT_H))
        self.size(reader.get(banner, BANNER_W), reader.get(banner, BANNER_H))
        return 0

    cdef int size(self, object w, object h) except -1:
        cdef Terms terms = self.terms
        cdef int64_t width, height
        cdef uint64_t size
        cdef Asked *asked = &self.asked
        if (w is None or h is None or not integer(w, &width) or not integer(h, &height)
                or not 0 < width <= MAX_SIDE or not 0 < height <= MAX_SIDE):
            return 0
        size = <uint64_t>width << 24 | <uint64_t>height
        if asked.n_sizes == self.sizes_capacity:
            asked.sizes = <uint64_t *>grow(
                asked.sizes, &self.sizes_capacity, asked.n_sizes + 1, sizeof(uint64_t))
        asked.sizes[asked.n_sizes] = size
        asked.n_sizes += 1
        return terms.push_number(SB_FORMAT, <uint64_t>SB_BANNER << 56 | size)

    cdef int read_video(self, object video) except -1:
        cdef Asked *asked = &self.asked
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Stream *stream = &asked.video
        asked.attributes[SB_VIDEO] = terms.masked(
            SB_VIDEO_ATTRIBUTE, reader.get(video, VIDEO_BATTR), NULL, "imp[].video.battr")
        asked.apis[SB_VIDEO] = bits(reader.get(video, VIDEO_API))
        stream.has_mimes = terms.entries(
            reader, SB_VIDEO_MIME, reader.get(video, VIDEO_MIMES), "imp[].video.mimes")
        stream.protocols = terms.masked(
            SB_VIDEO_PROTOCOL, reader.get(video, VIDEO_PROTOCOLS), &stream.has_protocols,
            "imp[].video.protocols")
        if not stream.has_protocols:  # the scalar of OpenRTB 2.1; some send a list
            protocol = reader.get(video, VIDEO_PROTOCOL)
            if protocol is not None:
                stream.protocols = terms.masked(
                    SB_VIDEO_PROTOCOL, protocol if PyList_CheckExact(protocol) else [protocol],
                    &stream.has_protocols, "imp[].video.protocol")
        stream.shortest = positive(reader.get(video, VIDEO_MINDURATION))
        stream.longest = positive(reader.get(video, VIDEO_MAXDURATION))
        self.read_player(stream, video)
        stream.delivery = terms.masked(
            SB_SPACES, reader.get(video, VIDEO_DELIVERY), &stream.has_delivery,
            "imp[].video.delivery")
        self.read_bitrates(
            stream, reader.get(video, VIDEO_MINBITRATE), reader.get(video, VIDEO_MAXBITRATE))
        self.read_durations(
            stream, reader.get(video, VIDEO_RQDDURS), reader.get(video, VIDEO_PODDUR))
        self.read_ads(stream, reader.get(video, VIDEO_MAXSEQ), reader.get(video, VIDEO_PODID),
                      reader.get(video, VIDEO_PODDUR))
        return 0

    cdef int read_audio(self, object audio) except -1:
        cdef Asked *asked = &self.asked
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Stream *stream = &asked.audio
        asked.attributes[SB_AUDIO] = terms.masked(
            SB_AUDIO_ATTRIBUTE, reader.get(audio, AUDIO_BATTR), NULL, "imp[].audio.battr")
        asked.apis[SB_AUDIO] = bits(reader.get(audio, AUDIO_API))
        stream.has_mimes = terms.entries(
            reader, SB_AUDIO_MIME, reader.get(audio, AUDIO_MIMES), "imp[].audio.mimes")
        stream.protocols = terms.masked(
            SB_AUDIO_PROTOCOL, reader.get(audio, AUDIO_PROTOCOLS), &stream.has_protocols,
            "imp[].audio.protocols")
        stream.shortest = positive(reader.get(audio, AUDIO_MINDURATION))
        stream.longest = positive(reader.get(audio, AUDIO_MAXDURATION))
        stream.delivery = terms.masked(
            SB_SPACES, reader.get(audio, AUDIO_DELIVERY), &stream.has_delivery,
            "imp[].audio.delivery")
        self.read_bitrates(
            stream, reader.get(audio, AUDIO_MINBITRATE), reader.get(audio, AUDIO_MAXBITRATE))
        self.read_durations(
            stream, reader.get(audio, AUDIO_RQDDURS), reader.get(audio, AUDIO_PODDUR))
        self.read_ads(stream, reader.get(audio, AUDIO_MAXSEQ), reader.get(audio, AUDIO_PODID),
                      reader.get(audio, AUDIO_PODDUR))
        return 0

    cdef int read_player(self, Stream *stream, object video) except -1:
        """Read linearity, skipping, and the player's size if media may not be boxed."""
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

    cdef int read_bitrates(self, Stream *stream, object least, object most) except -1:
        stream.least_bitrate = positive(least)
        stream.most_bitrate = positive(most)
        if stream.has_delivery or stream.least_bitrate or stream.most_bitrate:
            stream.limits_media = True
        return 0

    cdef int read_durations(self, Stream *stream, object exact, object pod) except -1:
        """Read the exact durations accepted, and the duration of the whole pod."""
        cdef Asked *asked = &self.asked
        cdef int64_t number
        number = positive(pod)
        if number:
            stream.longest = min(stream.longest, number) if stream.longest else number
        stream.first_duration = asked.n_durations
        if filled(exact):
            for item in <list>exact:
                if item is not None and not is_zero(item):
                    stream.exact = True
                    if integer(item, &number) and number < NO_DURATION:
                        if asked.n_durations == self.durations_capacity:
                            asked.durations = <uint32_t *>grow(
                                asked.durations, &self.durations_capacity,
                                asked.n_durations + 1, sizeof(uint32_t))
                        asked.durations[asked.n_durations] = number
                        asked.n_durations += 1
        if stream.exact:
            stream.n_durations = sb_sort(asked.durations + stream.first_duration,
                                         asked.n_durations - stream.first_duration)
            asked.n_durations = stream.first_duration + stream.n_durations
        return 0

    cdef void read_ads(self, Stream *stream, object most, object pod,
                       object pod_duration) noexcept:
        """Read how many ads one creative may have: one in a fixed slot of a pod, and one of exact
        durations, since a creative states only the sum of its ads' durations."""
        if stream.exact or is_given(pod) and not positive(pod_duration):
            stream.most_ads = 1
        else:
            stream.most_ads = positive(most)
        if stream.most_ads:
            stream.limits_media = True

    cdef int read_prices(self, Prices *prices, object per_second, object floors,
                         object currency) except -1:
        """Read the floors by duration: per second, and per range of durations."""
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        cdef Span span
        cdef double given
        memset(prices, 0, sizeof(prices[0]))
        if PyFloat_CheckExact(per_second):
            given = PyFloat_AS_DOUBLE(per_second)
            if not given <= 0:  # NaN, too
                prices.limited = True
                prices.per_second = self.plain_floor(given, currency)
                if prices.per_second <= 0:
                    prices.amount = given
                    prices.currency = <PyObject *>currency
        prices.first_span = prices.last_span = asked.n_spans
        if not filled(floors):
            return 0
        for item in <list>floors:
            if reader.checked(item, DURFLOORS) is None:
                continue
            span.shortest = positive(reader.get(item, DURFLOORS_MINDUR))
            span.longest = positive(reader.get(item, DURFLOORS_MAXDUR)) or UNREACHABLE
            amount = reader.get(item, DURFLOORS_BIDFLOOR)
            if (span.shortest > span.longest or not PyFloat_CheckExact(amount)
                    or PyFloat_AS_DOUBLE(amount) <= 0):
                continue
            span.floor = self.floor(amount, currency)
            if asked.n_spans == self.spans_capacity:
                asked.spans = <Span *>grow(
                    asked.spans, &self.spans_capacity, asked.n_spans + 1, sizeof(Span))
            asked.spans[asked.n_spans] = span
            asked.n_spans += 1
        prices.last_span = asked.n_spans
        prices.limited |= prices.last_span != prices.first_span
        return 0

    cdef int read_deals(self, object deals) except -1:
        """Read the deals' ids and prices, and the seats and advertisers admitted by each."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef Asked *asked = &self.asked
        cdef Deal *offered
        cdef uint32_t index
        if not filled(deals):
            return 0
        deals = first(deals, MAX_DEALS)
        asked.n_deals = PyList_GET_SIZE(deals)
        asked.deals = <Deal *>grow(asked.deals, &self.deals_capacity, asked.n_deals, sizeof(Deal))
        terms.begin(SB_DEAL)
        for index in range(asked.n_deals):
            if sb_spend(self.allowance, 1):
                asked.n_deals = index
                break
            deal = (<list>deals)[index]
            reader.checked(deal, DEAL)
            offered = &asked.deals[index]
            offered.floor = self.floor(
                reader.get(deal, DEAL_BIDFLOOR), reader.get(deal, DEAL_BIDFLOORCUR))
            offered.guaranteed = is_one(reader.get(deal, DEAL_GUAR))
            self.read_prices(&offered.prices, reader.get(deal, DEAL_MINCPMPERSEC),
                             reader.get(deal, DEAL_DURFLOORS), reader.get(deal, DEAL_BIDFLOORCUR))
            asked.deals_are_timed |= offered.prices.limited
            offered.id = terms.count
            terms.trimmed(SB_DEAL, reader.get(deal, DEAL_ID), False)
            if terms.count == offered.id:
                offered.id = NO_TERM
        terms.end(SB_DEAL)
        for index in range(asked.n_deals):
            deal = (<list>deals)[index]
            offered = &asked.deals[index]
            offered.seats = terms.count
            offered.has_seats = terms.entries(
                reader, SB_SEAT, reader.get(deal, DEAL_WSEAT), "imp[].pmp.deals[].wseat")
            offered.n_seats = terms.count - offered.seats
            offered.advertisers = terms.count
            offered.has_advertisers = terms.entries(
                reader, SB_AD_DOMAIN, reader.get(deal, DEAL_WADOMAIN), WADOMAIN)
            offered.n_advertisers = terms.count - offered.advertisers
        return 0

    cdef int64_t floor(self, object amount, object currency) except? -2:
        """Return a floor in micro-USD, rounded up; -1 without a rate.

        Anything but a plain amount of USD, for bids in USD, is left to `Lookups.floor_micros`.
        """
        cdef double given
        cdef int64_t micros
        if not self.reader.in_usd:
            return min(self.lookups.floor_micros(amount, currency), UNREACHABLE)
        if amount is None:
            return 0
        if PyFloat_CheckExact(amount):
            given = PyFloat_AS_DOUBLE(amount)
            if given <= 0:
                return 0
            micros = self.plain_floor(given, currency)
            if micros >= 0:
                return micros
        self.allowance.steps -= CALL_STEPS
        return min(self.lookups.floor_micros(amount, currency), UNREACHABLE)

    cdef inline int64_t plain_floor(self, double given, object currency) except? -1:
        """Return a plain amount of USD in whole micro-USD, for bids in USD; -1 for anything
        else."""
        cdef double micros
        if self.reader.in_usd and given < EXACT_USD and (currency is None or currency == "USD"):
            micros = rint(given * MICROS)
            if micros / MICROS == given:
                return <int64_t>micros
        return -1
