/* Spellings of the entries in a request's restricting lists. Checking an entry that is already in
 * standard form costs one pass over its machine words. */
#ifndef SNAPBID_SPELLING_H
#define SNAPBID_SPELLING_H

#include "search.h"

enum sb_kind { SB_IDS, SB_BUNDLES, SB_HOSTS, SB_TYPES }; /* of entries */

#define SB_EACH(byte) (0x0101010101010101ULL * (byte))

/* For ASCII bytes: sets the high bit of each byte in the range. */
static inline uint64_t sb_below(uint64_t word, uint64_t byte) {
    return (word - SB_EACH(byte)) & ~word;
}
static inline uint64_t sb_from_to(uint64_t word, uint64_t first, uint64_t last) {
    return (SB_EACH(0x80 + last) - word) & (word + SB_EACH(0x80 - first));
}

/* Marks the characters of an id or a type that require closer parsing. */
static inline uint64_t sb_marks(uint64_t word, enum sb_kind kind) {
    uint64_t marks = sb_below(word, '-');
    if (kind == SB_TYPES)
        marks |= sb_from_to(word, ';', ';');
    else
        marks |= sb_from_to(word, ';', '>') | sb_from_to(word, '[', ']')
            | (word + SB_EACH(0x80 - '{'));
    return marks & SB_EACH(0x80);
}

/* Whether non-empty ASCII, an id or a type, has none of the characters that require closer
 * parsing. */
static inline int sb_is_plain(const char *text, size_t size, enum sb_kind kind) {
    const unsigned char *at = (const unsigned char *)text, *last = at + size - 8;
    uint64_t marks = 0, word = 0;
    if (size >= 8) {
        for (; at < last; at += 8) marks |= sb_marks(sb_load(at, 8), kind);
        return (marks | sb_marks(sb_load(last, 8), kind)) == 0;
    }
    if (size >= 4)
        word = sb_load(at, 4) | sb_load(at + size - 4, 4) << 32;
    else
        for (size_t i = 0; i < 8; i++) word = word << 8 | at[i < size ? i : 0];
    return sb_marks(word, kind) == 0;
}

/* Whether a host begins with a www. that can be dropped, with something after it. */
static inline int sb_has_www(const char *text, size_t size) {
    return size > 4 && (sb_load((const unsigned char *)text, 4) | 0x00202020) == 0x2e777777
        && memchr(text + 4, '.', size - 4) != NULL;
}

/* Marks the characters of a host that require closer parsing; an underscore, which is rare, too. */
static inline uint64_t sb_host_marks(uint64_t word) {
    uint64_t folded = word | SB_EACH(0x20); /* '@' is '`' then, and '[' to '_' are behind 'z' */
    return (SB_EACH(0x80 + ',') - word) | sb_from_to(folded, '/', '/')
        | sb_from_to(folded, ':', '`') | (folded + SB_EACH(0x80 - '{'));
}

/* The same for a bundle, which may well have an underscore. */
static inline uint64_t sb_bundle_marks(uint64_t word) {
    uint64_t folded = word | SB_EACH(0x20);
    return (SB_EACH(0x80 + ',') - word) | sb_from_to(folded, '/', '/')
        | sb_from_to(folded, ':', '`') | sb_from_to(folded, '{', '~');
}

/* Writes the term of an ASCII text of at least 4 bytes; returns whether it has no marked character.
 * Lists of hosts and bundles are a request's longest, so one pass does both. Of a host's unmarked
 * characters only capitals lack the bit 0x20: setting it puts them into lower case. */
static inline int sb_unmarked(sb_term *term, uint32_t space, const char *text, size_t size,
                              int is_host) {
    const unsigned char *at = (const unsigned char *)text, *last = at + size - 8;
    uint64_t word, marks = 0, hash = sb_hash_first(space, size), bit = is_host ? SB_EACH(0x20) : 0;
    if (size >= 8) {
        for (; at < last; at += 8) {
            word = sb_load(at, 8);
            marks |= is_host ? sb_host_marks(word) : sb_bundle_marks(word);
            hash = sb_hash_next(hash, word | bit);
        }
        word = sb_load(last, 8);
    } else {
        word = sb_short(at, size);
    }
    marks |= is_host ? sb_host_marks(word) : sb_bundle_marks(word);
    sb_hashed_term(term, sb_hash_last(hash, word | bit), space, text, size, is_host);
    return (marks & SB_EACH(0x80)) == 0;
}

/* Writes the term of an ASCII text if it is a host in standard form, and returns whether it is;
 * otherwise the term is undefined. */
static inline int sb_plain_host(sb_term *term, uint32_t space, const char *text, size_t size) {
    return size >= 4 && sb_unmarked(term, space, text, size, 1) && text[0] != '.'
        && text[size - 1] != '.' && !sb_has_www(text, size);
}

/* The same for a bundle. */
static inline int sb_plain_bundle(sb_term *term, uint32_t space, const char *text, size_t size) {
    return size >= 4 && sb_unmarked(term, space, text, size, 0);
}

typedef struct { const char *at; size_t size; } sb_slice; /* of a text */

static inline sb_slice sb_trimmed(const char *at, const char *end) {
    while (at < end && (unsigned char)*at <= ' ') at++;
    while (at < end && (unsigned char)end[-1] <= ' ') end--;
    return (sb_slice){at, (size_t)(end - at)};
}

/* How the parts of an entry are separated: by commas; in a pasted list, also by white space,
 * semicolons, bars or quotes; or as categories, which may have blanks in them. */
enum sb_separators { SB_COMMAS, SB_PASTED, SB_CATEGORIES };

static inline int sb_separates(const char *at, const char *end, enum sb_separators separators) {
    if (*at == ',' || separators == SB_COMMAS) return *at == ',';
    if (*at == ' ') return separators == SB_PASTED || (at + 1 < end && (at[1] | 32) == 'i');
    return (unsigned char)*at < ' ' || *at == ';' || *at == '|' || *at == '"' || *at == '\''
        || *at == '<' || *at == '>';
}

/* The next part of an entry; `at` is moved past its separator, and past `end` after the last
 * part. */
static inline sb_slice sb_next_part(const char **at, const char *end,
                                    enum sb_separators separators) {
    const char *from = *at, *to = from;
    while (to < end && !sb_separates(to, end, separators)) to++;
    *at = to + 1;
    return sb_trimmed(from, to);
}

static inline int sb_is_digit(char byte) { return byte >= '0' && byte <= '9'; }
static inline int sb_is_alphanumeric(char byte) {
    return sb_is_digit(byte) || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}

static inline int sb_hex(char byte) {
    char letter = byte | 32;
    return sb_is_digit(byte) ? byte - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* Writes a text without its percent-encoding, however often it was encoded; returns its length. */
static inline size_t sb_unescape(sb_slice text, char *out) {
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++) {
        out[size++] = text.at[i];
        while (size >= 3 && out[size - 3] == '%' && sb_hex(out[size - 2]) >= 0
               && sb_hex(out[size - 1]) >= 0) {
            out[size - 3] = (char)(sb_hex(out[size - 2]) << 4 | sb_hex(out[size - 1]));
            size -= 2;
        }
    }
    return size;
}

/* A media type without its parameters. */
static inline sb_slice sb_type_in(sb_slice entry) {
    const char *end = (const char *)memchr(entry.at, ';', entry.size);
    return end ? sb_trimmed(entry.at, end) : entry;
}

static inline int sb_is_of_host(unsigned char byte) {
    return sb_is_alphanumeric((char)byte) || byte == '-' || byte == '_' || byte >= 0x80;
}

/* Browsers take a backslash in a URL for a slash, and any number of them before the host. */
static inline int sb_is_slash(char byte) { return byte == '/' || byte == '\\'; }

static inline const char *sb_end_of_host(const char *at, const char *end) {
    while (at < end && !sb_is_slash(*at) && *at != '?' && *at != '#') at++;
    return at;
}

static inline int sb_has_dot(const char *at, const char *end) {
    return memchr(at, '.', (size_t)(end - at)) != NULL;
}

/* Whether this is http or https, which is no host before slashes: some write the scheme twice. */
static inline int sb_is_http(const char *at, size_t size) {
    return (size == 4 || (size == 5 && (at[4] | 32) == 's'))
        && (sb_load((const unsigned char *)at, 4) | 0x20202020) == 0x70747468;
}

/* Whether a scheme, with or without its colon, ends at the slash. */
static inline int sb_is_scheme(const char *at, const char *slash, const char *end, int is_first) {
    size_t size = (size_t)(slash - at);
    if (slash + 1 >= end || !sb_is_slash(slash[0])) return 0;
    if (size && slash[-1] == ':')
        return sb_is_http(at, size - 1)
            || (is_first && (sb_is_slash(slash[1]) || !sb_has_dot(at, slash)));
    return sb_is_slash(slash[1]) && (size == 0 || sb_is_http(at, size));
}

/* The host of a domain or URL: without scheme, user, port, path, a leading *. or www. and the
 * root's dot. Empty if there is none. */
static inline sb_slice sb_host_in(sb_slice entry) {
    const char *at = entry.at, *end = at + entry.size, *slash = sb_end_of_host(at, end), *one;
    while (sb_is_scheme(at, slash, end, at == entry.at)) {
        while (slash < end && sb_is_slash(*slash)) slash++;
        at = slash;
        slash = sb_end_of_host(at, end);
    }
    if (slash + 1 < end && *slash == '\\' && (slash[1] == '.' || !sb_has_dot(at, slash)))
        return (sb_slice){at, 0}; /* an escaped dot */
    end = slash;
    for (one = end; one > at; one--)
        if (one[-1] == '@') { at = one; break; }
    one = (const char *)memchr(at, ':', (size_t)(end - at));
    if (one && !sb_has_dot(at, one) && sb_has_dot(one, end)) { /* a scheme without slashes */
        at = one + 1;
        one = (const char *)memchr(at, ':', (size_t)(end - at));
    }
    while (one && --end > one) /* a port */
        if (!sb_is_digit(*end)) return (sb_slice){at, 0};
    while (at < end && (*at == '.' || *at == '*')) at++;
    while (end > at && end[-1] == '.') end--;
    while (sb_has_www(at, (size_t)(end - at))) at += 4;
    for (one = at; one < end; one++)
        if (!sb_is_of_host((unsigned char)*one) && (*one != '.' || one[-1] == '.'))
            return (sb_slice){at, 0};
    return (sb_slice){at, (size_t)(end - at)};
}

/* The next part of a text that could be a host; `at` is moved past it. */
static inline sb_slice sb_next_host(const char **at, const char *end) {
    const char *from = *at, *to;
    while (from < end && !sb_is_of_host((unsigned char)*from)) from++;
    for (to = from; to < end; to++)
        if (!sb_is_of_host((unsigned char)*to)
            && (*to != '.' || to + 1 == end || !sb_is_of_host((unsigned char)to[1]))) break;
    *at = to;
    while (sb_has_www(from, (size_t)(to - from))) from += 4;
    return (sb_slice){from, (size_t)(to - from)};
}

static inline int sb_is_of_bundle(unsigned char byte) {
    return sb_is_of_host(byte) || byte == '.';
}

/* The next part of a text that could be a bundle; `at` is moved past it. */
static inline sb_slice sb_next_bundle(const char **at, const char *end) {
    const char *from = *at, *to;
    while (from < end && !sb_is_of_bundle((unsigned char)*from)) from++;
    for (to = from; to < end && sb_is_of_bundle((unsigned char)*to);) to++;
    *at = to;
    return (sb_slice){from, (size_t)(to - from)};
}

/* The digits of an id such as `id284910350`, as in Apple's addresses; empty for any other text. */
static inline sb_slice sb_store_number(sb_slice id) {
    size_t i = 2;
    if (id.size < 3 || (id.at[0] | 32) != 'i' || (id.at[1] | 32) != 'd') return (sb_slice){id.at, 0};
    while (i < id.size && sb_is_digit(id.at[i])) i++;
    return (sb_slice){id.at + 2, i == id.size ? i - 2 : 0};
}

/* An id that ends in dots, without them; empty for any other id. */
static inline sb_slice sb_without_dot(sb_slice id) {
    size_t size = id.size;
    while (size && id.at[size - 1] == '.') size--;
    return (sb_slice){id.at, size < id.size ? size : 0};
}

static inline int sb_is_bracket(char byte) {
    return byte == '[' || byte == ']' || byte == '(' || byte == ')' || byte == '{' || byte == '}';
}

/* Whether a text that is no host, bundle or seat in standard form is a pattern, or an escaped
 * spelling: it has a wildcard, a backslash, or brackets other than around it. Round and curly
 * brackets may be part of an id. In the address of a bundle's store only an asterisk counts. */
static inline int sb_is_pattern(sb_slice text, enum sb_kind kind) {
    const char *at = text.at, *end = at + text.size;
    int is_address = kind == SB_BUNDLES
        && (memchr(at, '/', text.size) != NULL || memchr(at, '=', text.size) != NULL);
    while (at < end && sb_is_bracket(*at)) at++;
    while (at < end && sb_is_bracket(end[-1])) end--;
    for (; at < end; at++) {
        if (*at == '*') return 1;
        if (is_address) continue;
        if (*at == '%' || *at == '\\' || *at == '[' || *at == ']') return 1;
        if (kind == SB_HOSTS && sb_is_bracket(*at)) return 1;
    }
    return 0;
}

/* Whether a language tag begins with a two-letter code that has not been replaced: the withdrawn
 * ones begin with i, j and m. */
static inline int sb_is_todays(sb_slice tag) {
    unsigned char first, second;
    if (tag.size < 2 || (tag.size > 2 && tag.at[2] != '-' && tag.at[2] != '_')) return 0;
    first = (unsigned char)tag.at[0] | 32;
    second = (unsigned char)tag.at[1] | 32;
    return first >= 'a' && first <= 'z' && second >= 'a' && second <= 'z'
        && first != 'i' && first != 'j' && first != 'm';
}

/* -- categories of the Content Taxonomy 1.0 --------------------------------------------------- */

enum { SB_MAX_FIRST = 32, SB_MAX_SECOND = 64, SB_FIRST_SIZE = 8 };

/* The number of a category spelled like IAB17-44: 17 * SB_MAX_SECOND + 44; -1 for any other
 * text. */
static inline int sb_first(const char *text, size_t size) {
    const unsigned char *at = (const unsigned char *)text, *end = at + size;
    int first, second = 0;
    if (size < 4 || size > SB_FIRST_SIZE || at[0] != 'I' || at[1] != 'A' || at[2] != 'B') return -1;
    at += 3;
    if (*at < '1' || *at > '9') return -1;
    first = *at++ - '0';
    if (at < end && *at >= '0' && *at <= '9') first = 10 * first + *at++ - '0';
    if (at < end) {
        if (*at++ != '-' || at == end || *at < '1' || *at > '9') return -1;
        second = *at++ - '0';
        if (at < end && *at >= '0' && *at <= '9') second = 10 * second + *at++ - '0';
        if (at < end) return -1;
    }
    return first < SB_MAX_FIRST && second < SB_MAX_SECOND ? first * SB_MAX_SECOND + second : -1;
}

/* Normalises a category with white space, in another case, with a dash after IAB, an underscore for
 * the other dash or leading zeros into `plain`, of `most` bytes; returns its length, 0 if it is
 * longer. What does not begin with IAB keeps its dashes and zeros. */
static inline size_t sb_spell_category(sb_slice entry, char *plain, size_t most) {
    size_t size = 0;
    int is_iab = 0;
    for (size_t i = 0; i < entry.size; i++) {
        char byte = entry.at[i];
        if ((unsigned char)byte <= ' ') continue;
        if (byte >= 'a' && byte <= 'z') byte -= 32;
        if (is_iab) {
            if (byte == '_') byte = '-';
            if (size == 3 && byte == '-') continue;
            if (sb_is_digit(byte) && plain[size - 1] == '0' && !sb_is_digit(plain[size - 2])) size--;
        }
        if (size == most) return 0;
        plain[size++] = byte;
        if (size == 3) is_iab = memcmp(plain, "IAB", 3) == 0;
    }
    return size;
}

#endif
