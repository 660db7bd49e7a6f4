/* A fast check that markup has no macro where percent-encoding does not protect. */
#ifndef SNAPBID_MARKUP_H
#define SNAPBID_MARKUP_H

#include <stddef.h>

enum { SB_LONGEST_NAME = 200 };  /* of the rest of an attribute's name, after a macro */

/* A non-ASCII byte may be part of a letter or a space; the worse of the two is assumed. */
static inline int sb_is_foreign(unsigned char c) { return c >= 0x80; }

static inline int sb_is_blank(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

static inline int sb_is_of_word(unsigned char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_'
        || sb_is_foreign(c);
}

/* The end of the lower-case `word` that begins at `at`, in any case; else NULL. */
static inline const char *sb_behind(const char *at, const char *end, const char *word) {
    for (; *word; word++, at++) {
        if (at == end) return NULL;
        const char c = *at >= 'A' && *at <= 'Z' ? *at | 0x20 : *at;
        if (c != *word) return NULL;
    }
    return at;
}

/* The same, allowing tabs and line ends between the letters, as in a URL. */
static inline int sb_is_scheme(const char *at, const char *end, const char *word) {
    for (; *word; at++) {
        if (at == end) return 0;
        if (*at == '\t' || *at == '\n' || *at == '\r') continue;
        if ((*at >= 'A' && *at <= 'Z' ? *at | 0x20 : *at) != *word++) return 0;
    }
    return 1;
}

static inline int sb_is_assigned(const char *at, const char *end) {
    while (at < end && sb_is_blank(*at)) at++;
    return at < end && (*at == '=' || sb_is_foreign(*at));
}

/* Whether an attribute may begin after a byte. */
static inline int sb_ends_attribute(unsigned char c) {
    return sb_is_blank(c) || sb_is_foreign(c) || c == '/' || c == '"' || c == '\'';
}

/* Whether a macro may be part of the name of an element or attribute. `at` is after `{{`. */
static inline int sb_may_be_name(const char *begin, const char *at, const char *end) {
    if (at - begin > 2) {
        const unsigned char before = at[-3];
        if (before == '<' || before == ':' || before == '}' || before == '-') return 1;
        if (sb_is_of_word(before)) return 1;
        if (before == '/' && at - begin > 3 && at[-4] == '<') return 1;
    }
    const char *name = sb_behind(at, end, "auction_id}}");
    if (name == NULL) name = sb_behind(at, end, "imp_id}}");
    if (name == NULL) return 0;
    const char *const longest = end - name > SB_LONGEST_NAME ? name + SB_LONGEST_NAME : end;
    while (name < longest && !sb_is_foreign(*name)
           && (sb_is_of_word(*name) || *name == '{' || *name == '}')) name++;
    return sb_is_assigned(name, end);
}

/* Whether an attribute that begins with `on` may have a value; `at` is after `on`. */
static inline int sb_may_be_handler(const char *at, const char *end) {
    while (at < end && *at != '=' && *at != '>' && !sb_ends_attribute(*at)) at++;
    return sb_is_assigned(at, end);
}

/* Whether the tags have no script between them, only its address at most. `at` is after
 * `<script`. */
static inline int sb_is_empty_script(const char *at, const char *end) {
    for (int quoted = 0; at < end; at++) {
        if (*at == '"') quoted = !quoted;
        else if (*at == '<') return 0;
        else if (*at == '\'' && !quoted) return 0;
        else if (*at == '>') return !quoted && sb_behind(at, end, "></script>") != NULL;
    }
    return 0;
}

/* Whether UTF-8 markup may have a macro with a value from the request where percent-encoding does
 * not protect (campaigns/markup.py). 0 only if it has none. */
static inline int sb_may_be_unprotected(const char *begin, size_t length) {
    const char *const end = begin + length;
    for (const char *at = begin; at < end; at++) {
        const unsigned char before = at > begin ? at[-1] : ' ';
        const char *behind;
        switch (*at) {
        case '&':
            if (at + 1 < end && at[1] == '#') return 1;
            if (sb_behind(at, end, "&lt;") || sb_behind(at, end, "&tab;")
                || sb_behind(at, end, "&newline;") || sb_behind(at, end, "&colon;")) return 1;
            break;
        case '{':
            if (at + 1 < end && at[1] == '{' && sb_may_be_name(begin, at + 2, end)) return 1;
            break;
        case 'd': case 'D':
            if (sb_is_scheme(at, end, "data:")) return 1;
            break;
        case 'j': case 'J':
            if (sb_is_scheme(at, end, "javascript")) return 1;
            break;
        case 'v': case 'V':
            if (sb_is_scheme(at, end, "vbscript")) return 1;
            break;
        case 'o': case 'O':
            if (sb_ends_attribute(before) && (behind = sb_behind(at, end, "on"))
                && sb_may_be_handler(behind, end)) return 1;
            break;
        case 's': case 'S':
            if (sb_behind(at, end, "srcdoc")) return 1;
            if ((behind = sb_behind(at, end, "script"))) {
                if (before == ':') return 1;
                if (before == '<' && !sb_is_empty_script(behind, end)) return 1;
            } else if ((behind = sb_behind(at, end, "style"))) {
                if (before == '<' || before == ':') return 1;
                if (sb_ends_attribute(before) && sb_is_assigned(behind, end)) return 1;
            }
        }
    }
    return 0;
}

#endif
