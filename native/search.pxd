"""search.h for Cython. Only declarations: nothing is imported at run time."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from layout cimport sb_header, sb_value

cdef extern from "search.h" nogil:
    enum: SB_TEXT, SB_FOLDED, SB_NUMBER
    ctypedef struct sb_term:
        uint64_t hash, number
        const char *text
        uint16_t size
        uint8_t space, form
    ctypedef struct sb_set:
        uint32_t count
    ctypedef struct sb_cursor:
        const uint64_t *row
        const uint32_t *rank
        const uint32_t *end
    ctypedef struct sb_group:
        const uint64_t *open
        uint32_t first, includes, excludes, dimension
    int sb_lowest(uint64_t word)
    void sb_prefetch(const void *at)
    bint sb_bit(const uint64_t *row, uint32_t rank)
    void sb_text_term(sb_term *term, uint32_t space, const char *text, size_t size, bint fold)
    void sb_number_term(sb_term *term, uint32_t space, uint64_t number)
    const char *sb_key(const sb_header *index, uint32_t value)
    void sb_expect(const sb_header *index, uint64_t hash)
    void sb_resolve(const sb_header *index, const sb_term *terms, uint32_t count, uint32_t *found)
    int sb_digits(char *at, int64_t number)
    void sb_rise(uint32_t *values, uint32_t count)
    uint32_t sb_sort(uint32_t *values, uint32_t count)
    bint sb_among(const uint32_t *values, uint32_t count, uint32_t value)
    void sb_make_set(sb_set *set, uint32_t *values, uint32_t count)
    bint sb_in(const sb_set *set, uint32_t value)
    bint sb_any_in(const sb_set *set, const uint32_t *values, uint32_t count)
    bint sb_line_in(const sb_set *set, const sb_value *values, uint32_t value)
    bint sb_has(sb_cursor *cursor, uint32_t rank)
    bint sb_admits(const sb_group *group, sb_cursor *cursors, uint32_t rank)
    uint32_t sb_gather(uint64_t *bits, uint32_t block, uint32_t blocks, const sb_group *group,
                       sb_cursor *cursors)
    void sb_narrow(uint64_t *candidates, uint32_t block, const uint64_t **rows, uint32_t first,
                   uint32_t n_rows, const sb_group *groups, uint32_t n_groups,
                   const sb_cursor *cursors)
