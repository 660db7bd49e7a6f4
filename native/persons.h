/* Keyed hashes of persons' ids: SipHash-2-4 (Aumasson and Bernstein, 2012), a pseudo-random function,
 * so that nobody without the key can compute or compare one. */
#ifndef SNAPBID_PERSONS_H
#define SNAPBID_PERSONS_H

#include <stdint.h>
#include <stddef.h>
#include <string.h>

#include "spelling.h"

#define SB_PERSON_KEY 16 /* bytes */

static inline uint64_t sb_turned(uint64_t word, int bits) { return word << bits | word >> (64 - bits); }

static inline void sb_sip_round(uint64_t v[4]) {
    v[0] += v[1]; v[1] = sb_turned(v[1], 13) ^ v[0]; v[0] = sb_turned(v[0], 32);
    v[2] += v[3]; v[3] = sb_turned(v[3], 16) ^ v[2];
    v[0] += v[3]; v[3] = sb_turned(v[3], 21) ^ v[0];
    v[2] += v[1]; v[1] = sb_turned(v[1], 17) ^ v[2]; v[2] = sb_turned(v[2], 32);
}

static inline uint64_t sb_person(const char *key, const char *name, size_t size) {
    uint64_t k[2], word, last = (uint64_t)size << 56;
    const char *end = name + (size & ~(size_t)7);
    memcpy(k, key, SB_PERSON_KEY);
    uint64_t v[4] = {k[0] ^ 0x736f6d6570736575ULL, k[1] ^ 0x646f72616e646f6dULL,
                     k[0] ^ 0x6c7967656e657261ULL, k[1] ^ 0x7465646279746573ULL};
    for (; name != end; name += 8) {
        memcpy(&word, name, 8);
        v[3] ^= word;
        sb_sip_round(v);
        sb_sip_round(v);
        v[0] ^= word;
    }
    for (size_t i = 0; i < (size & 7); i++)
        last |= (uint64_t)(unsigned char)name[i] << (8 * i);
    v[3] ^= last;
    sb_sip_round(v);
    sb_sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sb_sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The first four characters of the ids that many devices share, and of HASHES_OF_NOTHING. */
#define SB_NO_ONES "02:09774" "0f6012b941e24d859f89b602c197c248cf95d41dda39e3b0"

/* Whether ASCII is certainly not a placeholder (campaigns/persons.py): it begins with a letter or a
 * digit, has another letter or digit that differs from the first, and contains a digit, which no
 * placeholder word does; and it does not begin like a shared id or the hash of nothing. Others need
 * a closer look. */
static inline int sb_is_plain_id(const char *id, size_t size) {
    int varies = 0, digits = 0;
    if (size == 0 || !sb_is_alphanumeric(id[0])) return 0;
    for (const char *known = SB_NO_ONES; *known && size >= 16; known += 4)
        if ((sb_load((const unsigned char *)id, 4) | 0x20202020)
            == sb_load((const unsigned char *)known, 4)) return 0;
    for (size_t i = 0; i < size; i++) {
        digits |= sb_is_digit(id[i]);
        varies |= id[i] != id[0] && sb_is_alphanumeric(id[i]);
    }
    return varies && digits;
}

#endif
