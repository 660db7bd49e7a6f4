"""spelling.h for Cython. Only declarations: nothing is imported at run time."""

from libc.stdint cimport uint32_t

from search cimport sb_term

cdef extern from "spelling.h" nogil:
    enum: SB_COMMAS, SB_PASTED, SB_CATEGORIES
    enum: SB_IDS, SB_BUNDLES, SB_HOSTS, SB_TYPES, SB_MAX_FIRST, SB_MAX_SECOND, SB_FIRST_SIZE
    ctypedef struct sb_slice:
        const char *at
        size_t size
    bint sb_is_plain(const char *text, size_t size, int kind)
    bint sb_plain_host(sb_term *term, uint32_t space, const char *text, size_t size)
    bint sb_plain_bundle(sb_term *term, uint32_t space, const char *text, size_t size)
    bint sb_has_www(const char *text, size_t size)
    sb_slice sb_trimmed(const char *at, const char *end)
    sb_slice sb_next_part(const char **at, const char *end, int separators)
    sb_slice sb_next_host(const char **at, const char *end)
    sb_slice sb_next_bundle(const char **at, const char *end)
    sb_slice sb_store_number(sb_slice id)
    sb_slice sb_without_dot(sb_slice id)
    bint sb_is_pattern(sb_slice text, int kind)
    size_t sb_unescape(sb_slice text, char *out)
    bint sb_has_dot(const char *at, const char *end)
    bint sb_is_alphanumeric(char byte)
    sb_slice sb_type_in(sb_slice entry)
    sb_slice sb_host_in(sb_slice entry)
    bint sb_is_todays(sb_slice tag)
    int sb_first(const char *text, size_t size)
    size_t sb_spell_category(sb_slice entry, char *plain, size_t most)
