# cython: auto_pickle=False, autotestdict=False
"""See _layer.pxd."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcpy, memset

from search cimport sb_key


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
        """Hide the campaigns whose ids the overlay has."""
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

    cdef void set_active(self, uint32_t rank, bint active) noexcept:
        """Let a campaign bid or not, in this process; hidden and paused ones never do."""
        cdef uint64_t bit = <uint64_t>1 << (rank & 63)
        cdef const uint64_t *unpaused = <const uint64_t *>(self.base + self.head.active)
        if not active:
            self.active[rank >> 6] &= ~bit
        elif unpaused[rank >> 6] & bit and (
                self.shown is NULL or self.shown[rank >> 6] & bit):
            self.active[rank >> 6] |= bit

    cdef int suspend(self, uint32_t rank, str creative, str canonical) except -1:
        """Suspend a creative at an SSP, in this process; unknown ones are ignored."""
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
            if one[i].seed == sb_hash(one[i].media, <const char *>encoded, len(encoded)):
                self.suspended[rank >> 6] |= <uint64_t>1 << (rank & 63)
                self.suspensions.add((rank, i, canonical))
            if one[i].flags & SB_LAST:
                return 0
            i += 1
