/* The parts of a search of an index (layout.h): terms, sets of values, cursors, groups. */
#ifndef SNAPBID_SEARCH_H
#define SNAPBID_SEARCH_H

#include <stdlib.h>

#include "layout.h"

static inline int sb_lowest(uint64_t word) { return __builtin_ctzll(word); }
static inline void sb_prefetch(const void *at) { __builtin_prefetch(at); }
static inline int sb_bit(const uint64_t *row, uint32_t rank) { return row[rank >> 6] >> (rank & 63) & 1; }

/* -- terms: the keys of a request, before and after they are looked up ----------------------- */

enum sb_form { SB_TEXT, SB_FOLDED, SB_NUMBER };

/* A key that may be in an index. SB_FOLDED: compared with its ASCII in lower case. */
typedef struct {
    uint64_t hash;
    union { const char *text; uint64_t number; };
    uint16_t size;
    uint8_t space, form;
} sb_term;

/* All write the term in place: copying what was just written in smaller pieces would stall until
 * all of them are stored. */
static inline void sb_hashed_term(sb_term *term, uint64_t hash, uint32_t space, const char *text,
                                  size_t size, int fold) {
    term->hash = hash;
    term->text = text;
    term->size = size;
    term->space = space;
    term->form = fold ? SB_FOLDED : SB_TEXT;
}

static inline void sb_text_term(sb_term *term, uint32_t space, const char *text, size_t size,
                                int fold) {
    uint64_t hash = fold ? sb_hash_of(space, text, size, 1) : sb_hash(space, text, size);
    sb_hashed_term(term, hash, space, text, size, fold);
}

static inline void sb_number_term(sb_term *term, uint32_t space, uint64_t number) {
    term->hash = sb_hash(space, &number, 8);
    term->number = number;
    term->size = 8;
    term->space = space;
    term->form = SB_NUMBER;
}

static inline const sb_slot *sb_slots(const sb_header *index) {
    return (const sb_slot *)((const char *)index + index->slots);
}

static inline const sb_value *sb_values(const sb_header *index) {
    return (const sb_value *)((const char *)index + index->values_at);
}

static inline const char *sb_key(const sb_header *index, uint32_t value) {
    return (const char *)index + index->keys + sb_values(index)[value].key;
}

/* Whether a text, in lower case if `fold` is set, equals the stored one; read as in sb_hash_of. */
static inline int sb_equal(const void *text, const void *stored, size_t size, int fold) {
    const unsigned char *a = (const unsigned char *)text, *b = (const unsigned char *)stored;
    uint64_t x, y;
    if (size < 4) {
        for (size_t i = 0; i < size; i++)
            if ((fold && a[i] >= 'A' && a[i] <= 'Z' ? a[i] + 32 : a[i]) != b[i]) return 0;
        return 1;
    }
    if (size < 8) {
        x = sb_load(a, 4) | sb_load(a + size - 4, 4) << 32;
        y = sb_load(b, 4) | sb_load(b + size - 4, 4) << 32;
        return (fold ? sb_fold(x) : x) == y;
    }
    for (size_t i = 0; i + 8 < size; i += 8) {
        x = sb_load(a + i, 8);
        if ((fold ? sb_fold(x) : x) != sb_load(b + i, 8)) return 0;
    }
    x = sb_load(a + size - 8, 8);
    return (fold ? sb_fold(x) : x) == sb_load(b + size - 8, 8);
}

static inline int sb_same(const sb_term *term, const char *stored) {
    uint32_t head;
    memcpy(&head, stored, 4);
    stored += 4;
    if (head != ((uint32_t)term->space << 24 | term->size)) return 0;
    if (term->form == SB_FOLDED) return sb_equal(term->text, stored, term->size, 1);
    if (term->form == SB_TEXT) return sb_equal(term->text, stored, term->size, 0);
    return sb_load((const unsigned char *)stored, 8) == term->number;
}

/* Writes the digits of a non-negative number, at most 19; returns how many. */
static inline int sb_digits(char *at, int64_t number) {
    char digits[20];
    int size = 0;
    do digits[size++] = (char)('0' + number % 10); while (number /= 10);
    for (int i = 0; i < size; i++) at[i] = digits[size - 1 - i];
    return size;
}

/* Prefetches the slot of a key. */
static inline void sb_expect(const sb_header *index, uint64_t hash) {
    sb_prefetch(sb_slots(index) + (hash & index->slot_mask));
}

/* The next value, from a slot of the table on, that has the term's tag; or SB_NONE. */
static inline uint32_t sb_probe(const sb_header *index, uint64_t *at, uint64_t hash) {
    const sb_slot *slots = sb_slots(index);
    while (slots[*at].value != SB_NONE && slots[*at].tag != (uint32_t)(hash >> 32))
        *at = (*at + 1) & index->slot_mask;
    return slots[*at].value;
}

/* Looks up the values of the terms, SB_NONE if no campaign has the key. Three passes, so that the
 * cache misses of many terms overlap. */
static inline void sb_resolve(const sb_header *index, const sb_term *terms, uint32_t count,
                              uint32_t *found) {
    const sb_value *values = sb_values(index);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = terms[i].hash & index->slot_mask;
        found[i] = sb_probe(index, &at, terms[i].hash);
        sb_prefetch(values + found[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        if (found[i] != SB_NONE) sb_prefetch(sb_key(index, found[i]));
    for (uint32_t i = 0; i < count; i++) {
        if (found[i] == SB_NONE || sb_same(terms + i, sb_key(index, found[i]))) continue;
        uint64_t at = terms[i].hash & index->slot_mask; /* two keys share a tag */
        while ((found[i] = sb_probe(index, &at, terms[i].hash)) != SB_NONE
               && !sb_same(terms + i, sb_key(index, found[i])))
            at = (at + 1) & index->slot_mask;
    }
}

/* -- sets of values -------------------------------------------------------------------------- */

typedef struct {
    const uint32_t *values; /* ascending */
    uint32_t count;
    uint64_t signature; /* a bit for each value, modulo 64 */
} sb_set;

static int sb_compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Radix sort, 11 bits at a time, in time linear in the number of values. 0: no memory. */
static int sb_radix(uint32_t *values, uint32_t count) {
    uint32_t *spare = (uint32_t *)malloc((size_t)count * sizeof(*values));
    uint32_t *from = values, *to = spare, *swap, starts[2048];
    if (!spare) return 0;
    for (int shift = 0; shift < 33; shift += 11) {
        uint32_t sum = 0;
        memset(starts, 0, sizeof(starts));
        for (uint32_t i = 0; i < count; i++) starts[from[i] >> shift & 2047]++;
        for (uint32_t i = 0; i < 2048; i++) { uint32_t n = starts[i]; starts[i] = sum; sum += n; }
        for (uint32_t i = 0; i < count; i++) to[starts[from[i] >> shift & 2047]++] = from[i];
        swap = from; from = to; to = swap;
    }
    memcpy(values, from, (size_t)count * sizeof(*values));
    free(spare);
    return 1;
}

/* Sorts values in place. */
static inline void sb_rise(uint32_t *values, uint32_t count) {
    uint32_t i, j;
    if (count > 16) {
        if (count < 1024 || !sb_radix(values, count))
            qsort(values, count, sizeof(*values), sb_compare);
        return;
    }
    for (i = 1; i < count; i++) {
        uint32_t one = values[i];
        for (j = i; j > 0 && values[j - 1] > one; j--) values[j] = values[j - 1];
        values[j] = one;
    }
}

/* Sorts values in place and drops SB_NONE and repeats; returns how many are left. */
static inline uint32_t sb_sort(uint32_t *values, uint32_t count) {
    uint32_t kept = 0, i;
    for (i = 0; i < count; i++)
        if (values[i] != SB_NONE) values[kept++] = values[i];
    count = kept;
    sb_rise(values, count);
    for (kept = 0, i = 0; i < count; i++)
        if (i == 0 || values[i] != values[i - 1]) values[kept++] = values[i];
    return kept;
}

/* Whether ascending values contain this one. */
static inline int sb_among(const uint32_t *values, uint32_t count, uint32_t value) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (values[middle] < value) low = middle + 1; else high = middle;
    }
    return low < count && values[low] == value;
}

static inline void sb_make_set(sb_set *set, uint32_t *values, uint32_t count) {
    set->values = values;
    set->count = sb_sort(values, count);
    set->signature = 0;
    for (uint32_t i = 0; i < set->count; i++) set->signature |= 1ULL << (values[i] & 63);
}

static inline int sb_in(const sb_set *set, uint32_t value) {
    return (set->signature >> (value & 63) & 1) && sb_among(set->values, set->count, value);
}

static inline int sb_any_in(const sb_set *set, const uint32_t *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (sb_in(set, values[i])) return 1;
    return 0;
}

/* Whether the value or one of its parents is in the set. */
static inline int sb_line_in(const sb_set *set, const sb_value *values, uint32_t value) {
    if (!set->count) return 0;
    for (; value != SB_NONE; value = values[value].parent)
        if (sb_in(set, value)) return 1;
    return 0;
}

/* -- cursors and groups ---------------------------------------------------------------------- */

/* A posting that is read by ascending rank. */
typedef struct {
    const uint64_t *row;        /* or NULL */
    const uint32_t *rank, *end; /* or NULL */
} sb_cursor;

/* The list's first rank from this one on. Ranks may be skipped, but never revisited. */
static inline const uint32_t *sb_seek(sb_cursor *cursor, uint32_t rank) {
    const uint32_t *at = cursor->rank, *end = cursor->end;
    if (at < end && *at < rank) { /* galloping, then binary search */
        size_t step = 1;
        while (step < (size_t)(end - at) && at[step] < rank) { at += step; step += step; }
        const uint32_t *top = step < (size_t)(end - at) ? at + step : end;
        while (at < top) {
            const uint32_t *middle = at + (top - at) / 2;
            if (*middle < rank) at = middle + 1; else top = middle;
        }
        cursor->rank = at;
    }
    return at;
}

/* Whether the posting has the rank. */
static inline int sb_has(sb_cursor *cursor, uint32_t rank) {
    if (cursor->row) return sb_bit(cursor->row, rank);
    const uint32_t *at = sb_seek(cursor, rank);
    return at < cursor->end && *at == rank;
}

/* A dimension that needs more than a row: (open or any include) and not any exclude. */
typedef struct {
    const uint64_t *open; /* campaigns without an include; NULL: all */
    uint32_t first, includes, excludes; /* in the cursors: includes, then excludes */
    uint32_t dimension;
} sb_group;

static inline int sb_admits(const sb_group *group, sb_cursor *cursors, uint32_t rank) {
    sb_cursor *at = cursors + group->first, *excludes = at + group->includes;
    sb_cursor *end = excludes + group->excludes;
    if (group->open && !sb_bit(group->open, rank)) {
        while (at < excludes && !sb_has(at, rank)) at++;
        if (at == excludes) return 0;
    }
    for (at = excludes; at < end; at++)
        if (sb_has(at, rank)) return 0;
    return 1;
}

/* Computes the campaigns of a block that the group includes. Returns the block, or if it has none
 * the next one that may have some; `blocks` if none has. */
static inline uint32_t sb_gather(uint64_t bits[SB_WORDS], uint32_t block, uint32_t blocks,
                                 const sb_group *group, sb_cursor *cursors) {
    sb_cursor *one = cursors + group->first, *behind = one + group->includes;
    uint32_t next = blocks;
    memset(bits, 0, SB_WORDS * sizeof(*bits));
    for (; one < behind; one++) {
        if (one->row) {
            for (uint32_t i = 0; i < SB_WORDS; i++) bits[i] |= one->row[block * SB_WORDS + i];
            next = block;
            continue;
        }
        const uint32_t *at = sb_seek(one, block * SB_BLOCK);
        if (at < one->end && *at / SB_BLOCK < next) next = *at / SB_BLOCK;
        for (; at < one->end && *at / SB_BLOCK == block; at++)
            bits[*at / 64 % SB_WORDS] |= 1ULL << (*at & 63);
    }
    return next;
}

/* The bits of a block, in parts that fit a register on all machines: a vector of 512 bits would be
 * kept in memory on those without such registers. The rows of a buffer may be unaligned. */
typedef uint64_t sb_part __attribute__((vector_size(16), aligned(8), may_alias));
typedef struct { sb_part a, b, c, d; } sb_bits;

static inline sb_bits sb_at(const uint64_t *row, uint32_t block) {
    const sb_part *at = (const sb_part *)row + (size_t)block * 4;
    return (sb_bits){at[0], at[1], at[2], at[3]};
}

static inline sb_bits sb_and(sb_bits x, sb_bits y) {
    return (sb_bits){x.a & y.a, x.b & y.b, x.c & y.c, x.d & y.d};
}

static inline sb_bits sb_or(sb_bits x, sb_bits y) {
    return (sb_bits){x.a | y.a, x.b | y.b, x.c | y.c, x.d | y.d};
}

static inline sb_bits sb_without(sb_bits x, sb_bits y) {
    return (sb_bits){x.a & ~y.a, x.b & ~y.b, x.c & ~y.c, x.d & ~y.d};
}

/* The campaigns of a block that sb_admits admits, for a group whose cursors are all rows. */
static inline sb_bits sb_restrict(sb_bits bits, uint32_t block, const sb_group *group,
                                  const sb_cursor *cursors) {
    const sb_cursor *at = cursors + group->first, *excludes = at + group->includes;
    const sb_cursor *end = excludes + group->excludes;
    if (group->open) {
        sb_bits any = sb_at(group->open, block);
        for (; at < excludes; at++) any = sb_or(any, sb_at(at->row, block));
        bits = sb_and(bits, any);
    }
    for (at = excludes; at < end; at++) bits = sb_without(bits, sb_at(at->row, block));
    return bits;
}

static inline int sb_is_empty(sb_bits x) {
    sb_part any = x.a | x.b | x.c | x.d;
    return !(any[0] | any[1]);
}

/* Reduces a block's bits to its candidates: those in all rows and admitted by all groups of rows.
 * From `first` on the rows are the impression's, which refuse more than most of the request's; the
 * request's are in the order of how many they refuse. */
static inline void sb_narrow(uint64_t candidates[SB_WORDS], uint32_t block,
                             const uint64_t *const *rows, uint32_t first, uint32_t n_rows,
                             const sb_group *groups, uint32_t n_groups, const sb_cursor *cursors) {
    sb_bits bits = sb_and(sb_at(candidates, 0), sb_at(rows[0], block));
    for (uint32_t i = first; i < n_rows; i++) bits = sb_and(bits, sb_at(rows[i], block));
    for (uint32_t i = 1; i < first; i++) {
        bits = sb_and(bits, sb_at(rows[i], block));
        if (i % 4 == 1 && sb_is_empty(bits)) n_groups = first = 0;
    }
    for (uint32_t i = 0; i < n_groups; i++) bits = sb_restrict(bits, block, groups + i, cursors);
    memcpy(candidates, &bits, sizeof(bits));
}

#endif
