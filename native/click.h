/* Click ids (campaigns/click_id.py): 33 bytes of content and 12 of signature, as 60 characters. */
#ifndef SNAPBID_CLICK_H
#define SNAPBID_CLICK_H

#include "persons.h"

#define SB_CLICK_CONTENT 33
#define SB_CLICK_BYTES 45
#define SB_CLICK_SIZE 60 /* characters */
#define SB_CLICK_MASKED 13 /* where time and auction begin */
#define SB_CLICK_PERSON 25

static inline void sb_click_put(char *at, uint64_t number, int size) {
    for (int i = 0; i < size; i++)
        at[i] = (char)(number >> 8 * (size - 1 - i));
}

/* `bought` names campaign and creative, `keys` are those of a ClickKey; person 0 means none. */
static inline void sb_click_id(char *out, const char *keys, int version_and_key, const char *bought,
                               uint32_t descriptor, uint32_t time_s, const char *auction,
                               uint64_t person) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char id[SB_CLICK_BYTES];
    id[0] = (char)version_and_key;
    memcpy(id + 1, bought, 8);
    sb_click_put(id + 9, descriptor, 4);
    sb_click_put(id + SB_CLICK_MASKED, time_s, 4);
    memcpy(id + 17, auction, 8);
    if (person)
        person ^= sb_person(keys + 2 * SB_PERSON_KEY, id + SB_CLICK_MASKED,
                            SB_CLICK_PERSON - SB_CLICK_MASKED);
    sb_click_put(id + SB_CLICK_PERSON, person, 8);
    sb_click_put(id + SB_CLICK_CONTENT, sb_person(keys, id, SB_CLICK_CONTENT), 8);
    sb_click_put(id + SB_CLICK_CONTENT + 8, sb_person(keys + SB_PERSON_KEY, id, SB_CLICK_CONTENT), 4);
    for (int i = 0; i < SB_CLICK_BYTES; i += 3, out += 4) {
        uint32_t three = (uint32_t)(uint8_t)id[i] << 16 | (uint32_t)(uint8_t)id[i + 1] << 8 | (uint8_t)id[i + 2];
        out[0] = letters[three >> 18];
        out[1] = letters[three >> 12 & 63];
        out[2] = letters[three >> 6 & 63];
        out[3] = letters[three & 63];
    }
}

#endif
