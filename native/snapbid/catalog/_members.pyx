# cython: auto_pickle=False, autotestdict=False
"""The members of audiences, in files that workers map; see `_members.pyi`.

A section of a file has entries of 16 bytes in ascending order: member (int64), the number of an
audience or a product (int32), and until (int32, seconds since the start of 2024; the largest number
means that the membership does not end). They are big-endian, as PostgreSQL sends them. After the
entries come the index of each prefix's first entry, and the number of entries, as native uint32. An
entry of the overlay replaces the base's entry for the same member and number.
"""

cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport UINT32_MAX
from libc.string cimport memcpy

cdef extern from *:
    uint64_t sb_swap64 "__builtin_bswap64" (uint64_t number) nogil
    uint32_t sb_swap32 "__builtin_bswap32" (uint32_t number) nogil

cdef enum:
    ENTRY = 16
    NEVER = 0x7fffffff
    MOST_PREFIXES = 28  # bits

cdef uint64_t SIGN = <uint64_t>1 << 63
cdef int64_t EPOCH_MS = 1704067200000  # 2024-01-01

EPOCH_S = EPOCH_MS // 1000
ENTRY_SIZE = ENTRY


cdef inline uint64_t member_at(const unsigned char *entry) noexcept:
    """Return an entry's member with its sign bit flipped, so that it sorts as unsigned."""
    cdef uint64_t number
    memcpy(&number, entry, 8)
    return sb_swap64(number) ^ SIGN


cdef inline uint32_t number_at(const unsigned char *entry, int offset) noexcept:
    cdef uint32_t number
    memcpy(&number, entry + offset, 4)
    return sb_swap32(number)


cdef inline uint32_t bits_of(uint64_t count) noexcept:
    """Return the number of bits in a prefix, at most 28, so that about 4 to 8 entries share one."""
    cdef uint32_t bits = 1
    while bits < MOST_PREFIXES and count >> (bits + 3):
        bits += 1
    return bits


cdef const unsigned char *bytes_of(object view, uint64_t *size) except? NULL:
    """Return the bytes of a memoryview."""
    if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise ValueError("the bytes of members are not contiguous")
    size[0] = PyMemoryView_GET_BUFFER(view).len
    return <const unsigned char *>PyMemoryView_GET_BUFFER(view).buf


def starts_of(object entries):
    cdef object view = memoryview(entries)
    cdef uint64_t size = 0
    cdef const unsigned char *entry = bytes_of(view, &size)
    cdef uint64_t count = size // ENTRY, i, member, before = 0
    cdef uint32_t bits = bits_of(count), shift = 64 - bits, prefix = 0, number, last = 0
    cdef bytearray made = bytearray(4 * ((<size_t>1 << bits) + 1))
    cdef uint32_t *starts = <uint32_t *><char *>made
    if size % ENTRY or count >= UINT32_MAX:
        raise ValueError("not a valid section of members")
    for i in range(count):
        member = member_at(entry)
        number = number_at(entry, 8)
        if i and (member < before or member == before and number <= last):
            raise ValueError("the members are not in ascending order")
        while prefix <= member >> shift:
            starts[prefix] = i
            prefix += 1
        before, last = member, number
        entry += ENTRY
    while prefix <= <uint32_t>1 << bits:
        starts[prefix] = count
        prefix += 1
    return made


cdef int open_section(Section *section, object view, uint64_t count) except -1:
    cdef uint64_t size = 0
    cdef const unsigned char *data = bytes_of(view, &size)
    cdef uint32_t bits = bits_of(count)
    if size != count * ENTRY + 4 * ((<uint64_t>1 << bits) + 1):
        raise ValueError("not a valid section of members")
    section.entries = data
    section.starts = <const uint32_t *>(data + count * ENTRY)
    section.count = count
    section.shift = 64 - bits
    if section.starts[<size_t>1 << bits] != count:
        raise ValueError("not a valid section of members")
    return 0


@cython.final
cdef class Members:
    def __cinit__(self, bytes key not None, dict audiences not None, dict products not None,
                  object over, uint64_t n_over, object base=None, uint64_t n_base=0):
        if len(key) != 16:
            raise ValueError("a key must have 16 bytes")
        self.over_bytes = memoryview(over)
        self.key, self.audiences, self.products = key, audiences, products
        open_section(&self.over, self.over_bytes, n_over)
        if base is not None:
            self.base_bytes = memoryview(base)
            open_section(&self.base, self.base_bytes, n_base)

    def __len__(self):
        return self.base.count + self.over.count

    def look_up(self, int64_t member, int64_t now_ms):
        audiences, products = [], []
        self.find(<uint64_t>member, now_ms, audiences, products)
        return audiences, products

    cdef int find(self, uint64_t member, int64_t now_ms, list audiences, list products) except -1:
        """Add the member's audiences and products to the lists."""
        cdef const unsigned char *over_end
        cdef const unsigned char *base_end
        cdef uint64_t wanted = member ^ SIGN
        cdef const unsigned char *over = seek(&self.over, wanted, &over_end)
        cdef const unsigned char *base = seek(&self.base, wanted, &base_end)
        cdef uint32_t over_number, base_number
        cdef int64_t now_s = (now_ms - EPOCH_MS) // 1000
        while True:
            while over < over_end and member_at(over) < wanted:
                over += ENTRY
            while base < base_end and member_at(base) < wanted:
                base += ENTRY
            over_number = base_number = UINT32_MAX
            if over < over_end and member_at(over) == wanted:
                over_number = number_at(over, 8)
            if base < base_end and member_at(base) == wanted:
                base_number = number_at(base, 8)
            if over_number == base_number == UINT32_MAX:
                return 0
            if base_number < over_number:
                self.add(base_number, number_at(base, 12), now_s, audiences, products)
            else:
                self.add(over_number, number_at(over, 12), now_s, audiences, products)
            if over_number <= base_number:
                over += ENTRY
            if base_number != UINT32_MAX and (base_number <= over_number):
                base += ENTRY

    cdef int add(self, uint32_t number, uint32_t until, int64_t now_s, list audiences,
                 list products) except -1:
        """Add an audience or a product, unless the entry has ended or its number has no name."""
        if until != NEVER and <int64_t>until <= now_s:
            return 0
        name = self.audiences.get(number)
        if name is not None:
            audiences.append(name)
            return 0
        name = self.products.get(number)
        if name is not None:
            products.append(name)
        return 0


cdef inline const unsigned char *seek(const Section *section, uint64_t member,
                                      const unsigned char **end) noexcept:
    """Return the first entry with the member's prefix, and the end of these entries."""
    cdef uint64_t prefix
    if section.count == 0:
        end[0] = NULL
        return NULL
    prefix = member >> section.shift
    end[0] = section.entries + <uint64_t>section.starts[prefix + 1] * ENTRY
    return section.entries + <uint64_t>section.starts[prefix] * ENTRY


@cython.final
cdef class MemberBook:
    @property
    def current(self):
        return self.current

    def use(self, Members members):
        self.current = members
