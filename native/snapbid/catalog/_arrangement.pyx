# cython: auto_pickle=False, autotestdict=False
"""See _arrangement.pxd."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy

from allowance cimport sb_spend
from memory cimport grow
from search cimport sb_admits, sb_bit, sb_prefetch, sb_sort

cdef enum:
    MAX_CURSORS = 64  # of a group; beyond, its postings are merged into a row


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class Arrangement:

    def __cinit__(self, Layer layer):
        self.layer = layer

    def __dealloc__(self):
        PyMem_Free(self.fresh)

    cdef int take_request(self, Terms terms, uint32_t *values) except -1:
        """Start over with a request's dimensions. `values` are those of the terms in the layer;
        those of a dimension get sorted.
        """
        cdef uint32_t i, dimension
        self.rows[0] = self.layer.active
        self.n_rows = 1
        self.n_flats = self.n_groups = self.n_cursors = 0
        self.refuses_all = False
        self.made = None
        for i in range(self.layer.n_order):
            dimension = self.layer.order[i]
            if dimension < SB_OF_IMPRESSION:
                self.arrange(dimension, values + terms.begins[dimension], terms.size(dimension))
        self.request_made = 0 if self.made is None else len(self.made)
        self.request_rows = self.n_rows
        self.request_flats = self.n_flats
        self.request_groups = self.n_groups
        self.request_cursors = self.n_cursors
        self.request_refuses_all = self.refuses_all
        return 0

    cdef int take_impression(self, Terms terms, uint32_t *values) except -1:
        """Replace the last impression's dimensions with this one's; `values` as above."""
        cdef uint32_t i, dimension
        if self.made is not None:
            del self.made[self.request_made:]
        self.n_rows = self.request_rows
        self.n_flats = self.request_flats
        self.n_groups = self.request_groups
        self.n_cursors = self.request_cursors
        self.refuses_all = self.request_refuses_all
        self.deals.includes = 0
        for i in range(self.layer.n_order):
            dimension = self.layer.order[i]
            if dimension >= SB_OF_IMPRESSION:
                self.arrange(dimension, values + terms.begins[dimension], terms.size(dimension))
        return 0

    cdef inline void row(self, uint32_t dimension, const uint64_t *row) noexcept:
        self.rows[self.n_rows] = row
        self.row_dimensions[self.n_rows] = dimension
        self.n_rows += 1
        sb_prefetch(row)

    cdef inline int arrange(self, uint32_t dimension, uint32_t *values, uint32_t count) except -1:
        """Narrow the campaigns down by the values of a dimension."""
        cdef const sb_dimension *open = self.layer.dimensions + dimension
        if count > 1:
            count = sb_sort(values, count)
        elif count and values[0] == SB_NONE:
            count = 0
        if count == 1 and self.layer.values[values[0]].row:
            self.row(dimension, self.layer.row(<uint64_t>self.layer.values[values[0]].row * 64))
        elif count:
            self.group(dimension, values, count)
        elif open.includes:
            self.row(dimension, self.layer.row(open.open))
            if open.includes == self.layer.head.campaigns:
                self.refuses_all = True
        return 0

    cdef int group(self, uint32_t dimension, const uint32_t *values, uint32_t count) except -1:
        cdef const sb_dimension *open = self.layer.dimensions + dimension
        cdef const sb_value *known = self.layer.values
        cdef sb_group *group = &self.groups[self.n_groups]
        cdef bint flat = True
        cdef uint32_t i
        group.dimension = dimension
        group.first = self.n_cursors
        group.open = self.layer.row(open.open) if open.includes else NULL
        if open.includes:
            for i in range(count):
                if known[values[i]].included.count:
                    flat &= self.cursor(&known[values[i]].included)
        group.includes = self.n_cursors - group.first
        if open.includes and group.includes == 0:  # only the others are left
            self.row(dimension, group.open)
            if open.includes == self.layer.head.campaigns:
                self.refuses_all = True
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
            self.flats[self.n_flats] = group[0]
            self.n_flats += 1
        else:
            self.n_groups += 1
        if group.open is not NULL:
            sb_prefetch(group.open)
        return 0

    cdef bint cursor(self, const sb_posting *posting) except -1:
        """Add a posting; return whether it is a row."""
        cdef sb_cursor *cursor
        if self.n_cursors == self.fresh_capacity:
            self.fresh = <sb_cursor *>grow(
                self.fresh, &self.fresh_capacity, self.n_cursors + 1, sizeof(sb_cursor))
        cursor = self.fresh + self.n_cursors
        self.n_cursors += 1
        if sb_is_row(posting.count, self.layer.head.campaigns):
            cursor.row = self.layer.row(<uint64_t>posting.at * 4)
            cursor.rank = cursor.end = NULL
            sb_prefetch(cursor.row)
            return True
        cursor.row = NULL
        cursor.rank = <const uint32_t *>(self.layer.base + <uint64_t>posting.at * 4)
        cursor.end = cursor.rank + posting.count
        sb_prefetch(cursor.rank)
        sb_prefetch(cursor.rank + 16)
        return False

    cdef uint32_t merge(self, uint32_t first) except 0:
        """Merge the cursors from `first` on into a single row, which replaces them: a request that
        names thousands of values costs one pass over their postings, not thousands of checks per
        campaign.
        """
        cdef size_t words = <size_t>self.layer.head.blocks * SB_WORDS
        cdef uint64_t *row
        cdef sb_cursor *cursor
        cdef uint32_t i
        cdef size_t word
        made = bytearray(words * sizeof(uint64_t))
        row = <uint64_t *>PyByteArray_AS_STRING(made)
        for i in range(first, self.n_cursors):
            cursor = self.fresh + i
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
        cursor = self.fresh + first
        cursor.row = row
        cursor.rank = cursor.end = NULL
        self.n_cursors = first + 1
        return 1

    cdef int refusing_dimension(self, uint32_t rank) except -2:
        """Return the lowest dimension whose row or group refuses the campaign, or -1."""
        cdef uint32_t i, lowest = SB_DIMENSIONS
        cdef sb_cursor *cursors = <sb_cursor *>PyMem_Malloc(
            max(self.n_cursors, 1) * sizeof(sb_cursor))
        if cursors is NULL:
            raise MemoryError
        if self.n_cursors:
            memcpy(cursors, self.fresh, self.n_cursors * sizeof(sb_cursor))
        for i in range(1, self.n_rows):
            if not sb_bit(self.rows[i], rank):
                lowest = min(lowest, self.row_dimensions[i])
        for i in range(self.n_flats):
            if not sb_admits(&self.flats[i], cursors, rank):
                lowest = min(lowest, self.flats[i].dimension)
        for i in range(self.n_groups):
            if not sb_admits(&self.groups[i], cursors, rank):
                lowest = min(lowest, self.groups[i].dimension)
        PyMem_Free(cursors)
        return -1 if lowest == SB_DIMENSIONS else <int>lowest
