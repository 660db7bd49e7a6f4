# cython: auto_pickle=False, autotestdict=False
"""See _postings.pxd."""

cimport cython
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

# Dimensions with few values, of which most requests have one: a stored row answers at once.
cdef frozenset ROWED = frozenset((
    SB_SSP, SB_COUNTRY, SB_DEVICE_TYPE, SB_CONNECTION, SB_OS, SB_BROWSER, SB_LANGUAGE,
    SB_INVENTORY, SB_HOUR, SB_POSITION, SB_PLACEMENT, SB_REWARDED, SB_INTERSTITIAL, SB_FORMAT,
))
# A request never has two values of these, so only a value's row is ever needed.
cdef frozenset SINGLE = frozenset((
    SB_COUNTRY, SB_DEVICE_TYPE, SB_CONNECTION, SB_OS, SB_BROWSER, SB_LANGUAGE, SB_HOUR,
    SB_REWARDED, SB_INTERSTITIAL,
))
cdef uint32_t ROWED_VALUES = 512  # beyond, a dimension's values have postings
cdef uint32_t NOT_SINGLE = 0xff


@cython.no_gc
@cython.final
cdef class Postings:

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

    cdef uint64_t place_all(self, uint64_t at, list keys, sb_value *values) except 0:
        """Lay out rows, then lists, from offset `at`; store the offsets if `values` is given."""
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
        """Assign the posting an offset if it is a row (or, without `rows`, a list); return the next
        one.
        """
        posting.count = count
        if count == 0 or sb_is_row(count, self.n) != rows:
            return at
        posting.at = at // 4
        return at + (self.row_size if rows else <uint64_t>count * 4)

    cdef void post(self, char *base, Entry entry, uint32_t rank, const uint32_t *renamed,
                   sb_value *values) noexcept:
        """Add the campaign to the postings of its terms; `inside`/`outside` count down.

        In a row without postings, set the bit in which it differs from `open` (`write_rows`).
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
        """Write row = (open | include) & ~exclude, for the values that have one."""
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
