/* BLAKE2b without a key (RFC 7693), over pieces of input. */
#ifndef SNAPBID_BLAKE2B_H
#define SNAPBID_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SB_BLAKE2B_BLOCK = 128 };

typedef struct {
    uint64_t state[8], length;
    uint8_t block[SB_BLAKE2B_BLOCK];  /* of which `filled` bytes are input; full only if more follows */
    size_t filled;
} sb_blake2b;

static const uint64_t sb_blake2b_iv[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

static const uint8_t sb_blake2b_sigma[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t sb_rotate(uint64_t x, int by) { return x >> by | x << (64 - by); }

static inline uint64_t sb_little64(const uint8_t *at) {
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--) x = x << 8 | at[i];
    return x;
}

static inline void sb_blake2b_mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = sb_rotate(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = sb_rotate(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = sb_rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = sb_rotate(v[b] ^ v[c], 63);
}

static inline void sb_blake2b_compress(sb_blake2b *hash, int is_last) {
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = sb_little64(hash->block + 8 * i);
    for (int i = 0; i < 8; i++) {
        v[i] = hash->state[i];
        v[i + 8] = sb_blake2b_iv[i];
    }
    v[12] ^= hash->length;
    if (is_last) v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = sb_blake2b_sigma[round];
        sb_blake2b_mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        sb_blake2b_mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        sb_blake2b_mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        sb_blake2b_mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        sb_blake2b_mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        sb_blake2b_mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        sb_blake2b_mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        sb_blake2b_mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++) hash->state[i] ^= v[i] ^ v[i + 8];
}

/* For a digest of `size` bytes, 1 to 64. */
static inline void sb_blake2b_begin(sb_blake2b *hash, size_t size) {
    memcpy(hash->state, sb_blake2b_iv, sizeof hash->state);
    hash->state[0] ^= 0x01010000u ^ size;
    hash->length = hash->filled = 0;
}

static inline void sb_blake2b_update(sb_blake2b *hash, const void *input, size_t size) {
    const uint8_t *at = (const uint8_t *)input;
    while (size > 0) {
        if (hash->filled == SB_BLAKE2B_BLOCK) {
            hash->length += SB_BLAKE2B_BLOCK;
            sb_blake2b_compress(hash, 0);
            hash->filled = 0;
        }
        size_t part = SB_BLAKE2B_BLOCK - hash->filled;
        if (part > size) part = size;
        memcpy(hash->block + hash->filled, at, part);
        hash->filled += part;
        at += part;
        size -= part;
    }
}

/* Writes the first `size` bytes of the digest, as many as it was begun for. */
static inline void sb_blake2b_end(sb_blake2b *hash, uint8_t *digest, size_t size) {
    hash->length += hash->filled;
    memset(hash->block + hash->filled, 0, SB_BLAKE2B_BLOCK - hash->filled);
    sb_blake2b_compress(hash, 1);
    for (size_t i = 0; i < size; i++) digest[i] = (uint8_t)(hash->state[i / 8] >> 8 * (i % 8));
}

#endif
