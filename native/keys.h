/* Finds keys that occur twice in one object of a JSON text. */
#ifndef SNAPBID_KEYS_H
#define SNAPBID_KEYS_H

#include <stddef.h>
#include <string.h>

enum { SB_MOST_KEYS = 256, SB_MOST_OBJECTS = 16 };

/* The quote that ends the string whose content begins at `at`, or `end`. */
static inline const char *sb_closing_quote(const char *at, const char *end) {
    while ((at = (const char *)memchr(at, '"', end - at)) != NULL) {
        const char *before = at;
        while (before[-1] == '\\') before--;
        if ((at - before) % 2 == 0) return at;
        at++;
    }
    return end;
}

static inline int sb_is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Whether a key may occur twice in an object of a valid JSON text. Keys are compared as they are
 * written, escapes and all. Also 1 where there are more keys, or objects within each other, than are
 * kept here. */
static inline int sb_may_repeat_keys(const char *at, size_t length) {
    const char *const end = at + length;
    struct { const char *text; size_t size; } keys[SB_MOST_KEYS];
    int first[SB_MOST_OBJECTS];  /* of an object's keys, by depth */
    int count = 0, depth = 0;
    for (; at < end; at++) {
        if (*at == '{') {
            if (depth == SB_MOST_OBJECTS) return 1;
            first[depth++] = count;
        } else if (*at == '}') {
            if (depth == 0) return 1;
            count = first[--depth];
        } else if (*at == '"') {
            const char *text = at + 1;
            at = sb_closing_quote(text, end);
            if (at == end) return 1;
            const char *after = at + 1;
            while (after < end && sb_is_space(*after)) after++;
            if (after == end || *after != ':') continue;  /* a value */
            if (depth == 0 || count == SB_MOST_KEYS) return 1;
            const size_t size = at - text;
            for (int key = first[depth - 1]; key < count; key++)
                if (keys[key].size == size && memcmp(keys[key].text, text, size) == 0) return 1;
            keys[count].text = text;
            keys[count++].size = size;
        }
    }
    return 0;
}

#endif
