# cython: auto_pickle=False, autotestdict=False
"""See _writer.pxd."""

cimport cython
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from snapbid.catalog._entry cimport EXCLUDE, Entry


def _falling(Entry entry):
    return -entry.record.price


cdef uint64_t length(str text) except? 0:
    """Return the length of a text in UTF-8."""
    cdef Py_ssize_t size
    PyUnicode_AsUTF8AndSize(text, &size)
    return size


@cython.final
cdef class IndexWriter:

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
        """Number a value and its parents for this index."""
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

        memset(&head, 0, sizeof(head))  # with its padding: equal catalogs give equal files
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
            raise ValueError("the campaigns are too many for an index")
        head.payload = at
        at += payload
        head.size = at + self.in_file

        self.output = bytearray(at)
        cdef char[::1] view = self.output
        self.base = &view[0]
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
        """Write the ids' keys, from this offset on, and their table."""
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
