# cython: auto_pickle=False, autotestdict=False
"""The builder of the index that the matcher maps (layout.h); see `_builder.pyi`.

The builder is kept between builds: a changed campaign is put again, and a deleted one discarded.
`build` writes the whole index from flat arrays: rows and lists of the campaigns that name a value
(`Postings`), and the rest of the file (`IndexWriter`).
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.math cimport M_PI, cos, sin
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from layout cimport *

DIMENSIONS = {
    "ssp": SB_SSP, "country": SB_COUNTRY, "region": SB_REGION, "city": SB_CITY,
    "postal": SB_POSTAL, "device_type": SB_DEVICE_TYPE, "connection": SB_CONNECTION,
    "os": SB_OS, "browser": SB_BROWSER, "carrier": SB_CARRIER, "language": SB_LANGUAGE,
    "inventory": SB_INVENTORY, "domain": SB_DOMAIN, "bundle": SB_BUNDLE,
    "publisher": SB_PUBLISHER, "category": SB_CATEGORY, "segment": SB_SEGMENT,
    "audience": SB_AUDIENCE, "product": SB_PRODUCT, "hour": SB_HOUR, "deal": SB_DEAL, "position": SB_POSITION, "placement": SB_PLACEMENT,
    "rewarded": SB_REWARDED, "interstitial": SB_INTERSTITIAL,
}
MEDIA = {"banner": SB_BANNER, "video": SB_VIDEO, "audio": SB_AUDIO, "native": SB_NATIVE}


# -- campaigns between builds ----------------------------------------------------------------------

cdef enum:
    EXCLUDE = 0x80000000  # marks a term of an exclude list


cdef void *block(size_t size) except NULL:
    cdef void *block = PyMem_Malloc(size)
    if block is NULL:
        raise MemoryError
    return block


@cython.no_gc
@cython.final
cdef class Numbers:
    """A growing array."""

    cdef uint32_t *at
    cdef uint32_t n, room

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef int grow(self) except -1:
        cdef uint32_t room = max(2 * self.room, 64)
        cdef void *at = PyMem_Realloc(self.at, room * sizeof(uint32_t))
        if at is NULL:
            raise MemoryError
        self.at = <uint32_t *>at
        self.room = room
        return 0

    cdef inline int add(self, uint32_t number) except -1:
        if self.n == self.room:
            self.grow()
        self.at[self.n] = number
        self.n += 1
        return 0

    cdef uint32_t *copy_to(self, uint32_t *to) noexcept:
        """Copy the numbers; return the address after the copy."""
        if self.n:  # `at` is NULL if nothing was added
            memcpy(to, self.at, self.n * sizeof(uint32_t))
        return to + self.n


@cython.final
cdef class Entry:
    """A campaign in flat arrays, with the builder's numbers for values.

    Indexes into lists and creatives start from 0 for each campaign.
    """

    cdef str id
    cdef bint active
    cdef sb_campaign record
    cdef sb_detail detail
    cdef sb_extra extra
    cdef uint32_t n_creatives
    cdef uint32_t includes, excludes  # bits: dimensions with such a list
    cdef sb_creative *creatives
    cdef sb_circle *circles  # in the block of the creatives
    cdef uint32_t *terms
    cdef uint32_t n_terms
    cdef uint32_t *lists     # in the block of the terms
    cdef uint32_t n_lists
    cdef bytes payload  # None: in the file, from detail.payload on

    def __dealloc__(self):
        PyMem_Free(self.creatives)
        PyMem_Free(self.terms)


# -- postings --------------------------------------------------------------------------------------

# Dimensions with few values, of which most requests have one: a stored row gives the answer.
cdef frozenset ROWED = frozenset((
    SB_SSP, SB_COUNTRY, SB_DEVICE_TYPE, SB_CONNECTION, SB_OS, SB_BROWSER, SB_LANGUAGE,
    SB_INVENTORY, SB_HOUR, SB_POSITION, SB_PLACEMENT, SB_REWARDED, SB_INTERSTITIAL, SB_FORMAT,
))
# A request never has two values of these, so only rows are needed.
cdef frozenset SINGLE = frozenset((
    SB_COUNTRY, SB_DEVICE_TYPE, SB_CONNECTION, SB_OS, SB_BROWSER, SB_LANGUAGE, SB_HOUR,
    SB_REWARDED, SB_INTERSTITIAL,
))
cdef uint32_t ROWED_VALUES = 512  # with more values, a dimension has only postings
cdef uint32_t NOT_SINGLE = 0xff


@cython.no_gc
@cython.final
cdef class Postings:
    """The campaigns that name a value, as a row of bits or a list of ranks (layout.h).

    Campaigns are first counted by value; then the rows and lists are laid out, then filled in.
    """

    cdef uint32_t n, blocks  # campaigns
    cdef uint64_t row_size
    cdef uint32_t *inside   # value -> campaigns that include it, later: fill position
    cdef uint32_t *outside
    cdef unsigned char *singles  # value -> its dimension, if it has a row and no postings

    def __cinit__(self, uint32_t campaigns, uint32_t values):
        self.n = campaigns
        self.blocks = (campaigns + SB_BLOCK - 1) // SB_BLOCK
        self.row_size = <uint64_t>self.blocks * (SB_BLOCK // 8)
        self.inside = <uint32_t *>calloc(values + 1, sizeof(uint32_t))
        self.outside = <uint32_t *>calloc(values + 1, sizeof(uint32_t))
        self.singles = <unsigned char *>calloc(values + 1, 1)
        if self.inside is NULL or self.outside is NULL or self.singles is NULL:
            raise MemoryError
        memset(self.singles, NOT_SINGLE, values + 1)

    def __dealloc__(self):
        free(self.inside)
        free(self.outside)
        free(self.singles)

    cdef inline void count(self, uint32_t value, uint32_t term) noexcept:
        """Count a campaign's term."""
        if term & EXCLUDE:
            self.outside[value] += 1
        else:
            self.inside[value] += 1

    cdef uint64_t place_all(self, uint64_t at, list keys, sb_value *values) except 0:
        """Lay out rows, then lists, from offset `at` on; store the offsets if `values` is given."""
        cdef uint32_t i, space, n_values = len(keys)
        cdef sb_value one
        cdef dict sizes = {}
        for i in range(1, n_values + 1):
            if self.inside[i] or self.outside[i]:
                space = (<bytes>keys[i - 1])[0]
                sizes[space] = sizes.get(space, 0) + 1
        rowed = {space for space, size in sizes.items() if space in ROWED and size <= ROWED_VALUES}
        for i in range(1, n_values + 1):
            memset(&one, 0, sizeof(one))
            space = (<bytes>keys[i - 1])[0]
            if space in rowed and (self.inside[i] or self.outside[i]):
                one.row = at // 64
                at += self.row_size
            if one.row and space in SINGLE:
                self.singles[i] = space
            else:
                at = self.place(&one.included, self.inside[i], at, True)
                at = self.place(&one.excluded, self.outside[i], at, True)
            if values is not NULL:
                values[i] = one
        for i in range(1, n_values + 1):
            if self.singles[i] != NOT_SINGLE:
                continue
            memset(&one, 0, sizeof(one))
            if values is not NULL:
                one = values[i]
            at = self.place(&one.included, self.inside[i], at, False)
            at = self.place(&one.excluded, self.outside[i], at, False)
            if values is not NULL:
                values[i] = one
        return sb_align(at)

    cdef uint64_t place(self, sb_posting *posting, uint32_t count, uint64_t at,
                        bint rows) noexcept:
        """Assign an offset to a posting, if it is a row (without `rows`: a list); return the next
        offset."""
        posting.count = count
        if count == 0 or sb_is_row(count, self.n) != rows:
            return at
        posting.at = at // 4
        return at + (self.row_size if rows else <uint64_t>count * 4)

    cdef void post(self, char *base, Entry entry, uint32_t rank, const uint32_t *renamed,
                   sb_value *values) noexcept:
        """Add a campaign to the postings of its terms; `inside` and `outside` count down.

        In a row without postings, set the bit if it differs from that of `open` (`write_rows`).
        """
        cdef uint32_t i, value, left
        cdef uint64_t bit = <uint64_t>1 << (rank & 63)
        cdef uint64_t *word
        cdef char *at
        cdef sb_posting *posting
        for i in range(entry.n_terms):
            value = renamed[entry.terms[i] & ~EXCLUDE]
            if self.singles[value] != NOT_SINGLE:
                word = <uint64_t *>(base + <uint64_t>values[value].row * 64) + (rank >> 6)
                if entry.terms[i] & EXCLUDE and entry.includes >> self.singles[value] & 1:
                    word[0] &= ~bit  # excludes come after the dimension's includes
                else:
                    word[0] |= bit
                continue
            if entry.terms[i] & EXCLUDE:
                posting = &values[value].excluded
                left = self.outside[value]
                self.outside[value] -= 1
            else:
                posting = &values[value].included
                left = self.inside[value]
                self.inside[value] -= 1
            at = base + <uint64_t>posting.at * 4
            if sb_is_row(posting.count, self.n):
                (<uint64_t *>at)[rank >> 6] |= bit
            else:
                (<uint32_t *>at)[posting.count - left] = rank

    cdef int write_rows(self, char *base, const sb_dimension *dimensions, list keys,
                        const sb_value *values) except -1:
        """Write row = (open | include) & ~exclude for each value with a row."""
        cdef uint64_t *row
        cdef const uint64_t *open
        cdef uint64_t word
        cdef uint32_t i, space
        everyone = b"\xff" * self.row_size
        for i in range(1, <uint32_t>len(keys) + 1):
            if not values[i].row:
                continue
            row = <uint64_t *>(base + <uint64_t>values[i].row * 64)
            space = (<bytes>keys[i - 1])[0]
            open = <const uint64_t *>(<const char *>everyone)
            if dimensions[space].open:
                open = <const uint64_t *>(base + dimensions[space].open)
            if self.singles[i] != NOT_SINGLE:
                for word in range(self.row_size // 8):
                    row[word] ^= open[word]
                continue
            memcpy(row, open, self.row_size)
            self.combine(base, row, &values[i].included, True)
            self.combine(base, row, &values[i].excluded, False)
        return 0

    cdef void combine(self, const char *base, uint64_t *row, const sb_posting *posting,
                      bint admitted) noexcept:
        """Set or clear the posting's campaigns in a row."""
        cdef const uint64_t *bits = <const uint64_t *>(base + <uint64_t>posting.at * 4)
        cdef const uint32_t *ranks = <const uint32_t *>bits
        cdef uint64_t i, bit
        if sb_is_row(posting.count, self.n):
            for i in range(<uint64_t>self.blocks * SB_WORDS):
                row[i] = row[i] | bits[i] if admitted else row[i] & ~bits[i]
            return
        for i in range(posting.count):
            bit = <uint64_t>1 << (ranks[i] & 63)
            row[ranks[i] >> 6] = (row[ranks[i] >> 6] | bit if admitted
                                  else row[ranks[i] >> 6] & ~bit)


# -- the file --------------------------------------------------------------------------------------

def _falling(Entry entry):
    return -entry.record.price


cdef uint64_t length(str text) except? 0:
    """Return the length of a text in UTF-8."""
    cdef Py_ssize_t size
    PyUnicode_AsUTF8AndSize(text, &size)
    return size


@cython.final
cdef class IndexWriter:
    """A writer of one index, which counts its contents, lays it out, and fills it in.

    `keys` and `parents` are the builder's; `in_file`: the size of the payload file, in bytes.
    """

    cdef list order  # Entry in rank order
    cdef list gone, all_keys
    cdef dict parents
    cdef uint64_t in_file
    cdef Postings postings
    cdef uint32_t n_values, n_all_values
    cdef uint32_t *renamed  # builder's value -> value of this index (0: unused)
    cdef object output
    cdef char *base

    def __cinit__(self, dict entries, set gone, list keys, dict parents, uint64_t in_file):
        self.order = [entries[id] for id in sorted(entries)]
        self.order.sort(key=_falling)
        self.gone = sorted(gone)
        self.all_keys, self.parents, self.in_file = keys, parents, in_file
        self.n_all_values = len(keys)
        self.postings = Postings(len(self.order), self.n_all_values)
        self.renamed = <uint32_t *>calloc(self.n_all_values + 1, sizeof(uint32_t))
        if self.renamed is NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.renamed)

    cdef uint32_t rename(self, uint32_t value) noexcept:
        if value == SB_NONE:
            return SB_NONE
        if self.renamed[value] == 0:
            self.n_values += 1
            self.renamed[value] = self.n_values
        return self.renamed[value]

    cdef int rename_line(self, uint32_t value) except -1:
        """Number a value and its parents in this index."""
        while value != SB_NONE and self.renamed[value] == 0:
            self.rename(value)
            value = self.parents.get(value, SB_NONE)
        return 0

    cdef write(self):
        cdef Entry entry
        cdef sb_header head
        cdef sb_dimension dimensions[32]
        cdef uint32_t i, term, n_capped = 0, n_extras = 0, families = 0
        cdef uint64_t n_lists = 0, n_creatives = 0, n_circles = 0, payload = 0, id_bytes = 0
        cdef uint32_t n = len(self.order)
        cdef uint64_t row_size = self.postings.row_size
        for i in range(SB_DIMENSIONS):
            dimensions[i].open = dimensions[i].includes = dimensions[i].excludes = 0
        for entry in self.order:
            for i in range(entry.n_terms):
                term = entry.terms[i]
                self.postings.count(self.rename(term & ~<uint32_t>EXCLUDE), term)
            for i in range(entry.n_lists):
                self.rename_line(entry.lists[i])
            if entry.record.categories:
                families |= 1u << (entry.record.flags >> SB_FAMILY)
            self.rename_line(entry.record.advertiser)
            self.rename(entry.record.seat)
            self.rename(entry.record.bundle)
            for i in range(entry.n_creatives):
                self.rename_line(entry.creatives[i].language)
            for i in range(SB_DIMENSIONS):
                dimensions[i].includes += entry.includes >> i & 1
                dimensions[i].excludes += entry.excludes >> i & 1
            n_lists += entry.n_lists
            n_creatives += entry.n_creatives
            n_circles += entry.extra.n_circles
            n_extras += (entry.record.flags & SB_EXTRA) != 0
            n_capped += (entry.record.flags & SB_CAPPED) != 0
            if entry.payload is not None:
                payload += len(entry.payload)
            id_bytes += length(entry.id)
        for id in self.gone:
            id_bytes += length(id)
        cdef uint64_t n_ids = n + len(self.gone)

        keys = [None] * self.n_values
        for i in range(1, self.n_all_values + 1):
            if self.renamed[i]:
                keys[self.renamed[i] - 1] = self.all_keys[i - 1]
        cdef uint64_t n_slots = 16
        while n_slots < 2 * (<uint64_t>self.n_values + 1):
            n_slots *= 2

        memset(&head, 0, sizeof(head))  # padding, too: equal catalogs give equal files
        head.magic = SB_MAGIC
        head.version = SB_VERSION
        head.campaigns = n
        head.blocks = self.postings.blocks
        head.capped = n_capped
        head.families = families
        head.values = self.n_values + 1
        head.n_ids = n_ids + n_ids // 4 + 1
        cdef uint64_t at = sb_align(sizeof(sb_header))
        head.slots = at
        head.slot_mask = n_slots - 1
        at = sb_align(at + n_slots * sizeof(sb_slot))
        head.keys = at
        at += sum(map(len, keys)) + 3 * <uint64_t>self.n_values
        at = sb_align(at + id_bytes + 4 * n_ids)
        head.ids = at
        at = sb_align(at + <uint64_t>head.n_ids * sizeof(sb_id))
        head.values_at = at
        at = sb_align(at + <uint64_t>head.values * sizeof(sb_value))
        head.dimensions = at
        at = sb_align(at + SB_DIMENSIONS * sizeof(sb_dimension))
        head.active = at
        at += row_size
        for i in range(SB_DIMENSIONS):
            if dimensions[i].includes:
                dimensions[i].open = at
                at += row_size
        head.campaigns_at = at
        at = sb_align(at + <uint64_t>n * sizeof(sb_campaign))
        head.details = at
        at = sb_align(at + <uint64_t>n * sizeof(sb_detail))
        head.extras = at
        at = sb_align(at + <uint64_t>n_extras * sizeof(sb_extra))
        head.creatives = at
        at = sb_align(at + <uint64_t>n_creatives * sizeof(sb_creative))
        head.circles = at
        at = sb_align(at + <uint64_t>n_circles * sizeof(sb_circle))
        head.lists = at
        at = sb_align(at + n_lists * sizeof(uint32_t))
        cdef uint64_t postings = at
        at = self.postings.place_all(at, keys, NULL)
        # Creatives and lists are numbered, keys and postings have offsets, in 32 bits.
        if (at // 4 >= UINT32_MAX or n_lists >= UINT32_MAX or n_creatives >= UINT32_MAX
                or n_circles >= UINT32_MAX or head.ids - head.keys >= UINT32_MAX):
            raise ValueError("too many campaigns for one index")
        head.payload = at
        at += payload
        head.size = at + self.in_file

        self.output = bytearray(at)
        self.base = PyByteArray_AS_STRING(self.output)
        memcpy(self.base, &head, sizeof(sb_header))
        memcpy(self.base + head.dimensions, dimensions, SB_DIMENSIONS * sizeof(sb_dimension))
        self.postings.place_all(postings, keys, <sb_value *>(self.base + head.values_at))
        self.write_ids(&head, self.write_keys(&head, keys))
        self.write_parents(<sb_value *>(self.base + head.values_at))
        self.write_campaigns(&head, dimensions)
        self.postings.write_rows(
            self.base, dimensions, keys, <const sb_value *>(self.base + head.values_at))
        return self.output

    cdef int write_parents(self, sb_value *values) except -1:
        cdef uint32_t child, parent
        for child, parent in self.parents.items():
            if self.renamed[child]:
                values[self.renamed[child]].parent = self.renamed[parent]
        return 0

    cdef uint32_t write_keys(self, sb_header *head, list keys) except? 0xffffffff:
        """Write the values' keys and their table; return the offset after the last key."""
        cdef sb_slot *slots = <sb_slot *>(self.base + head.slots)
        cdef sb_value *values = <sb_value *>(self.base + head.values_at)
        cdef uint64_t slot, hash
        cdef uint32_t offset = 0, value = 0, size
        cdef bytes key
        cdef const char *text
        for key in keys:
            value += 1
            text = key
            size = len(key) - 1
            hash = sb_hash(<unsigned char>text[0], text + 1, size)
            slot = hash & head.slot_mask
            while slots[slot].value != SB_NONE:
                slot = (slot + 1) & head.slot_mask
            slots[slot].tag = hash >> 32
            slots[slot].value = value
            values[value].key = offset
            offset = self.write_key(head, <unsigned char>text[0], text + 1, size, offset)
        return offset

    cdef uint32_t write_key(self, sb_header *head, uint32_t space, const char *text, uint32_t size,
                            uint32_t offset) noexcept:
        cdef uint32_t head_word = space << 24 | size
        memcpy(self.base + head.keys + offset, &head_word, 4)
        memcpy(self.base + head.keys + offset + 4, text, size)
        return offset + 4 + size

    cdef int write_ids(self, sb_header *head, uint32_t offset) except -1:
        """Write the ids' keys, from an offset on, and their table."""
        cdef sb_id *slots = <sb_id *>(self.base + head.ids)
        cdef Entry entry
        cdef uint32_t i, rank = 0
        for i in range(head.n_ids):
            slots[i].key = SB_FREE
        for entry in self.order:
            offset = self.write_id(head, entry.id, rank, offset)
            rank += 1
        for id in self.gone:
            offset = self.write_id(head, id, SB_GONE, offset)
        return 0

    cdef uint32_t write_id(self, sb_header *head, str id, uint32_t rank,
                           uint32_t offset) except? 0xffffffff:
        cdef sb_id *slots = <sb_id *>(self.base + head.ids)
        cdef Py_ssize_t size
        cdef const char *text = PyUnicode_AsUTF8AndSize(id, &size)
        cdef uint32_t slot = sb_id_slot(text, size, head.n_ids)
        while slots[slot].key != SB_FREE:
            slot = slot + 1 if slot + 1 < head.n_ids else 0
        slots[slot].key = offset
        slots[slot].rank = rank
        return self.write_key(head, SB_CAMPAIGN_ID, text, size, offset)

    cdef int write_campaigns(self, sb_header *head, sb_dimension *dimensions) except -1:
        cdef Entry entry
        cdef sb_campaign *record = <sb_campaign *>(self.base + head.campaigns_at)
        cdef sb_detail *detail = <sb_detail *>(self.base + head.details)
        cdef sb_extra *extra = <sb_extra *>(self.base + head.extras)
        cdef uint64_t payload_at = head.payload
        cdef sb_creative *creative = <sb_creative *>(self.base + head.creatives)
        cdef sb_circle *circle = <sb_circle *>(self.base + head.circles)
        cdef uint32_t *number = <uint32_t *>(self.base + head.lists)
        cdef uint64_t *active = <uint64_t *>(self.base + head.active)
        cdef uint32_t i, rank = 0, creatives = 0, circles = 0, lists = 0, extras = 0
        cdef const char *text
        for entry in self.order:
            record[rank] = entry.record
            record[rank].seat = self.rename(entry.record.seat)
            record[rank].bundle = self.rename(entry.record.bundle)
            record[rank].advertiser = self.rename(entry.record.advertiser)
            record[rank].creatives = creatives
            record[rank].lists = lists
            for i in range(entry.n_creatives):
                creative[creatives] = entry.creatives[i]
                creative[creatives].lists += lists
                creative[creatives].language = self.rename(entry.creatives[i].language)
                creatives += 1
            detail[rank] = entry.detail
            detail[rank].extra = extras
            if entry.record.flags & SB_EXTRA:
                extra[extras] = entry.extra
                extra[extras].circles = circles
                extras += 1
            memcpy(circle + circles, entry.circles, entry.extra.n_circles * sizeof(sb_circle))
            circles += entry.extra.n_circles
            for i in range(entry.n_lists):
                number[lists + i] = self.rename(entry.lists[i])
            lists += entry.n_lists
            if entry.payload is None:
                detail[rank].payload += head.payload
            else:
                detail[rank].payload = payload_at
                text = entry.payload
                memcpy(self.base + payload_at, text, len(entry.payload))
                payload_at += len(entry.payload)
            if entry.active:
                active[rank >> 6] |= <uint64_t>1 << (rank & 63)
            for i in range(SB_DIMENSIONS):
                if dimensions[i].open and not entry.includes >> i & 1:
                    (<uint64_t *>(self.base + dimensions[i].open))[rank >> 6] |= (
                        <uint64_t>1 << (rank & 63))
            self.postings.post(self.base, entry, rank, self.renamed,
                               <sb_value *>(self.base + head.values_at))
            rank += 1
        return 0


# -- the builder -----------------------------------------------------------------------------------

cdef double EARTH_KM = 6371.0088

cdef dict ATTRIBUTE_SPACE = {
    SB_BANNER: SB_BANNER_ATTRIBUTE, SB_VIDEO: SB_VIDEO_ATTRIBUTE, SB_AUDIO: SB_AUDIO_ATTRIBUTE,
    SB_NATIVE: SB_NATIVE_ATTRIBUTE,
}
cdef dict MIME_SPACE = {
    SB_BANNER: SB_BANNER_MIME, SB_VIDEO: SB_VIDEO_MIME, SB_AUDIO: SB_AUDIO_MIME,
}
cdef dict PROTOCOL_SPACE = {SB_VIDEO: SB_VIDEO_PROTOCOL, SB_AUDIO: SB_AUDIO_PROTOCOL}


cdef list every_name(object mimes, dict types):
    """Return media types under all of their names, since a request may have any."""
    return [name for mime in mimes for name in types.get(mime, (mime,))]


cdef uint32_t mask(object numbers) except? 0:
    """Return the bits of the numbers below SB_MASKED."""
    cdef uint32_t bits = 0
    for number in numbers:
        if number < SB_MASKED:
            bits |= <uint32_t>1 << <uint32_t>number
    return bits


cdef list beyond(object numbers):
    """Return the numbers that `mask` leaves out."""
    return [number for number in numbers if number >= SB_MASKED]


cdef uint16_t counted(uint32_t entries) except? 0xffff:
    if entries >= 0xffff:
        raise ValueError("a list has over 65,534 entries")
    return entries


cdef class Builder:
    cdef dict entries  # id -> Entry
    cdef set gone      # ids that this index hides in its base
    cdef list values   # space -> {text or integer: value}
    cdef list keys     # value - 1 -> bytes: space, key
    cdef dict parents  # value -> value, of those that have one
    cdef object payloads
    cdef uint64_t in_file  # bytes of payloads
    cdef Numbers terms, lists  # of the campaign being put
    cdef Numbers seen          # value -> the list that it was last seen in
    cdef uint32_t list_number
    cdef readonly Py_ssize_t n_unused  # values that no campaign named in the last build

    def __cinit__(self, object payloads=None):
        self.entries = {}
        self.gone = set()
        self.values = [{} for _ in range(SB_SPACES)]
        self.keys = []
        self.parents = {}
        self.payloads = payloads
        self.terms = Numbers()
        self.lists = Numbers()
        self.seen = Numbers()
        self.seen.add(0)

    def __len__(self):
        return len(self.entries)

    cdef uint32_t value(self, uint32_t space, object key) except 0:
        """Return the builder's number for a text or an integer, assigning one to a new key."""
        cdef dict known = <dict>self.values[space]
        cdef bytes stored
        value = known.get(key)
        if value is None:
            stored = key.encode() if isinstance(key, str) else key.to_bytes(8, "little")
            if len(stored) > SB_KEY_MAX:
                raise ValueError(f"a targeting value is over {SB_KEY_MAX} bytes")
            if len(self.keys) >= EXCLUDE - 1:
                raise ValueError("too many targeting values for one index")
            self.seen.add(0)
            self.keys.append(bytes((space,)) + stored)
            value = known[key] = len(self.keys)
        return value

    cdef uint32_t add_all(self, Numbers into, uint32_t space, object keys,
                          uint32_t mark=0) except? 0xffffffff:
        """Add the values of the keys, each once and with `mark`; return how many were added."""
        cdef uint32_t value, before = into.n
        self.begin_list()
        for key in keys:
            value = self.value(space, key)
            if self.seen.at[value] != self.list_number:
                self.seen.at[value] = self.list_number
                into.add(value | mark)
        return into.n - before

    cdef void begin_list(self) noexcept:
        self.list_number += 1
        if self.list_number == 0:  # wrapped around, after 2**32 lists
            memset(self.seen.at, 0, self.seen.n * sizeof(uint32_t))
            self.list_number = 1

    cdef uint32_t line(self, uint32_t space, tuple keys) except 0:
        """Return the value of the first key; the other keys, its ancestors, become values too."""
        cdef uint32_t value = self.value(space, keys[0])
        cdef uint32_t child = value
        for key in keys[1:]:
            if child in self.parents:
                break
            self.parents[child] = self.value(space, key)
            child = self.parents[child]
        return value

    cdef uint32_t language(self, str tag) except 0:
        """Return the value of a language tag; its prefixes (`en` of `en-gb`) become values too."""
        cdef uint32_t value = self.value(SB_AD_LANGUAGE, tag)
        cdef uint32_t child = value
        while child not in self.parents:
            tag, dash, _ = tag.rpartition("-")
            if not dash:
                break
            self.parents[child] = self.value(SB_AD_LANGUAGE, tag)
            child = self.parents[child]
        return value

    def discard(self, str id):
        self.entries.pop(id, None)
        self.gone.discard(id)

    def hide(self, str id):
        self.entries.pop(id, None)
        self.gone.add(id)

    def put(self, object campaign, bytes payload, object categories, tuple advertiser not None,
            dict types not None):
        cdef Entry entry = Entry()
        self.terms.n = self.lists.n = 0
        entry.id = campaign.id
        encoded = entry.id.encode()
        if len(encoded) > SB_KEY_MAX:
            raise ValueError(f"a campaign's id is over {SB_KEY_MAX} bytes")
        entry.detail.seed = sb_hash(SB_CAMPAIGN_ID, <const char *>encoded, len(encoded))
        entry.active = campaign.status == "active"
        family, own, mapped, listed = categories
        self.put_record(entry, campaign, advertiser)
        entry.record.flags |= <uint16_t>family << SB_FAMILY
        for line in own:
            self.lists.add(self.line(SB_AD_CATEGORY, line))
        entry.record.categories = counted(self.lists.n)
        self.put_targeting(entry, campaign.targeting)
        if campaign.product is not None:
            entry.excludes |= 1u << SB_PRODUCT
            self.add_all(self.terms, SB_PRODUCT, (campaign.product,), EXCLUDE)
        for marker, lines in mapped:
            self.lists.add(self.value(SB_AD_CATEGORY, marker))
            for line in lines:
                self.lists.add(self.line(SB_AD_CATEGORY, line))
            self.lists.add(self.value(SB_AD_CATEGORY, marker))
        for marker, groups in listed:
            self.put_groups(marker, groups)
        self.put_creatives(entry, campaign.creatives, campaign.geo_radius, types)
        self.put_circles(entry, campaign.geo_radius)
        entry.n_terms = self.terms.n
        entry.n_lists = self.lists.n
        entry.terms = <uint32_t *>block(
            <size_t>(entry.n_terms + entry.n_lists) * sizeof(uint32_t))
        entry.lists = self.terms.copy_to(entry.terms)
        self.lists.copy_to(entry.lists)
        entry.detail.payload_size = len(payload)
        if self.payloads is None:
            entry.payload = payload
        else:
            self.payloads.write(payload)
            entry.detail.payload = self.in_file
            self.in_file += len(payload)
        self.gone.discard(entry.id)
        self.entries[entry.id] = entry

    cdef int put_groups(self, str marker, tuple groups) except -1:
        """Store, for each category, the categories of another taxonomy with the same meaning."""
        self.lists.add(self.value(SB_AD_CATEGORY, marker))
        self.lists.add(SB_NONE)
        for lines in groups:
            for line in lines:
                self.lists.add(self.line(SB_AD_CATEGORY, line))
            self.lists.add(SB_NONE)
        self.lists.add(self.value(SB_AD_CATEGORY, marker))
        return 0

    cdef int put_record(self, Entry entry, object campaign, tuple advertiser) except -1:
        starts_ms, ends_ms = campaign.starts_at_ms, campaign.ends_at_ms
        entry.extra.starts_ms = INT64_MIN if starts_ms is None else starts_ms
        entry.extra.ends_ms = INT64_MAX if ends_ms is None else ends_ms
        entry.record.price = campaign.cpm_micros
        if campaign.frequency_caps:
            entry.record.flags |= SB_CAPPED
        if starts_ms is not None or ends_ms is not None:
            entry.record.flags |= SB_TIMED
        if campaign.geo_radius:
            entry.record.flags |= SB_CIRCLES
        if campaign.dsa is not None:
            entry.record.flags |= SB_DSA
            if campaign.dsa.adrender is not None:
                entry.record.flags |= SB_RENDERS if campaign.dsa.adrender else SB_LEAVES
        seat, bundle = campaign.seat, campaign.bundle
        if seat is not None:
            entry.record.seat = self.value(SB_SEAT, seat)
        if bundle is not None:
            entry.record.bundle = self.value(SB_AD_BUNDLE, bundle)
        entry.record.advertiser = self.line(SB_AD_DOMAIN, advertiser)
        return 0

    cdef int put_targeting(self, Entry entry, dict targeting) except -1:
        cdef Numbers terms = self.terms
        cdef uint32_t dimension, i, first
        for name, values in targeting.items():
            dimension = DIMENSIONS[name]
            # `include` is a keyword in Cython.
            included, excluded = getattr(values, "include"), values.exclude
            if included:
                entry.includes |= 1u << dimension
                first = terms.n
                self.add_all(terms, dimension, included)
                if dimension == SB_DEAL:
                    entry.record.flags |= SB_DEALS
                    entry.extra.deals = terms.n - first
                    for i in range(first, terms.n):
                        self.lists.add(terms.at[i])
            if excluded:
                entry.excludes |= 1u << dimension
                self.add_all(terms, dimension, excluded, EXCLUDE)
        return 0

    cdef int put_creatives(self, Entry entry, tuple creatives, tuple circles,
                           dict types) except -1:
        """Store the creatives, their lists, and the formats that they fit."""
        cdef sb_creative *one
        cdef sb_creative *last = NULL
        cdef Numbers lists = self.lists
        cdef uint32_t media
        cdef uint64_t size
        cdef list formats = []
        if not creatives:
            raise ValueError("a campaign must have at least one creative")
        entry.n_creatives = len(creatives)
        for creative in creatives:
            entry.n_creatives += len(creative.renditions)
        entry.creatives = one = <sb_creative *>block(
            entry.n_creatives * sizeof(sb_creative) + len(circles) * sizeof(sb_circle))
        entry.circles = <sb_circle *>(one + entry.n_creatives)
        for creative in creatives:
            encoded = creative.id.encode()
            media = MEDIA[creative.media]
            w, h, duration = creative.w, creative.h, creative.duration
            memset(one, 0, sizeof(sb_creative))
            one.seed = sb_hash(media, <const char *>encoded, len(encoded))
            one.duration = -1 if duration is None else duration
            one.media = media
            one.flags = SB_SECURE if creative.secure else 0
            one.apis = mask(creative.apis)
            one.type = creative.type or 0
            linear, bitrate = creative.linear, creative.bitrate
            if linear is not None:
                one.flags |= SB_LINEAR if linear else SB_OVERLAY
            if creative.skippable is False:
                one.flags |= SB_NOT_SKIPPABLE
            one.bitrate = bitrate or 0
            one.delivery = mask(creative.delivery)
            one.ads = creative.ads or 1
            language = creative.language
            if language is not None:
                one.language = self.language(language)
            one.w = w or 0
            one.h = h or 0
            one.lists = lists.n
            if media in MIME_SPACE:
                one.mimes = counted(
                    self.add_all(lists, MIME_SPACE[media], every_name(creative.mimes, types)))
            attributes, protocols = creative.attributes, creative.protocols
            if attributes and media in ATTRIBUTE_SPACE:
                one.attributes = mask(attributes)
                one.other_attributes = counted(
                    self.add_all(lists, ATTRIBUTE_SPACE[media], beyond(attributes)))
            if protocols and media in PROTOCOL_SPACE:
                one.protocols = mask(protocols)
                one.other_protocols = counted(
                    self.add_all(lists, PROTOCOL_SPACE[media], beyond(protocols)))
            if creative.native is not None:
                one.protocols = creative.native.kinds
            size = (<uint64_t>one.w << 24 | one.h) if media == SB_BANNER else 0
            formats.append(<uint64_t>media << 56 | size)
            last = one
            one = self.put_renditions(one, media, creative.renditions, types)
        last.flags |= SB_LAST
        entry.includes |= 1u << SB_FORMAT
        self.add_all(self.terms, SB_FORMAT, formats)
        return 0

    cdef sb_creative *put_renditions(self, sb_creative *creative, uint32_t media,
                                     tuple renditions, dict types) except NULL:
        """Store the renditions after their creative; return the address after them."""
        cdef sb_creative *one = creative
        for each in renditions:
            one += 1
            one[0] = creative[0]
            one.flags |= SB_RENDITION
            one.bitrate = each.bitrate or 0
            one.delivery = mask(each.delivery)
            one.apis = mask(each.apis)
            one.w = each.w or 0
            one.h = each.h or 0
            one.lists = self.lists.n
            one.mimes = self.add_all(self.lists, MIME_SPACE[media], every_name((each.mime,), types))
        if renditions:
            creative.flags |= SB_VARIED
            one.flags |= SB_LAST
        return one + 1

    cdef int put_circles(self, Entry entry, tuple circles) except -1:
        cdef sb_circle *one = entry.circles
        cdef double half
        entry.extra.n_circles = len(circles)
        for circle in circles:
            one.lat = circle.lat * M_PI / 180
            one.lon = circle.lon * M_PI / 180
            one.cos_lat = cos(one.lat)
            half = circle.km / (2 * EARTH_KM)
            one.limit = sin(half) ** 2 if half < M_PI / 2 else 2
            one += 1
        return 0

    def build(self):
        cdef IndexWriter writer = IndexWriter(
            self.entries, self.gone, self.keys, self.parents, self.in_file)
        index = writer.write()
        self.n_unused = len(self.keys) - writer.n_values
        return index
