/* The layout of the index that the builder writes and the matcher maps.
 *
 * One contiguous, position-independent piece of memory: little-endian, offsets counted from its
 * start, sections on 64-byte boundaries, so that a file can be mapped read-only by any number of
 * processes. Campaigns are in *rank* order: falling price, then id. A *row* has one bit per
 * campaign, in rank order, padded to whole blocks of 512 bits (one cache line).
 *
 * An index can overlay another one, its base: the overlay's entry for an id, be it a campaign or
 * SB_GONE, replaces the base's campaign of that id.
 *
 * A *value* is a (space, key) pair: the space is a targeting dimension, or a vocabulary that the
 * request's restrictions are compared with; the key is a text or an integer. Value 0 means none. */
#ifndef SNAPBID_LAYOUT_H
#define SNAPBID_LAYOUT_H

#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define SB_MAGIC 0x5844494249504e53ULL /* "SNPIBIDX" */
#define SB_VERSION 11u
#define SB_BLOCK 512u      /* campaigns per block */
#define SB_WORDS 8u        /* 64-bit words per block */
#define SB_KEY_MAX 512u    /* bytes of the longest key; no campaign has a longer one */
#define SB_NONE 0u
#define SB_GONE 0xffffffffu /* the rank of an id whose campaign was deleted */
#define SB_FREE 0xffffffffu /* the key of a free sb_id */
#define SB_MASKED 32u       /* attributes and protocols below it are in masks */

enum sb_space {
    /* Targeting dimensions: these have postings. */
    SB_SSP, SB_COUNTRY, SB_REGION, SB_CITY, SB_POSTAL, SB_DEVICE_TYPE, SB_CONNECTION, SB_OS,
    SB_BROWSER, SB_CARRIER, SB_LANGUAGE, SB_INVENTORY, SB_DOMAIN, SB_BUNDLE, SB_PUBLISHER,
    SB_CATEGORY, SB_SEGMENT, SB_AUDIENCE,
    SB_PRODUCT, /* that must not advertise to the person: excluded by its campaigns */
    SB_HOUR,
    /* From here on, dimensions of an impression. */
    SB_DEAL, SB_POSITION, SB_PLACEMENT, SB_REWARDED, SB_INTERSTITIAL,
    SB_FORMAT, /* what an impression can show: a banner size, video, audio or native */
    SB_DIMENSIONS, SB_OF_IMPRESSION = SB_DEAL,
    /* Vocabularies of restrictions: only compared. One per medium where the request has one list
     * per medium, so that a mark on a value identifies its list. */
    SB_AD_CATEGORY = SB_DIMENSIONS, SB_AD_DOMAIN, SB_AD_BUNDLE, SB_SEAT, SB_AD_LANGUAGE,
    SB_BANNER_ATTRIBUTE, SB_VIDEO_ATTRIBUTE, SB_AUDIO_ATTRIBUTE, SB_NATIVE_ATTRIBUTE,
    SB_BANNER_MIME, SB_VIDEO_MIME, SB_AUDIO_MIME, SB_VIDEO_PROTOCOL, SB_AUDIO_PROTOCOL,
    SB_CAMPAIGN_ID, /* in a table of its own */
    SB_SPACES
};

enum sb_media { SB_BANNER = 1, SB_VIDEO = 2, SB_AUDIO = 3, SB_NATIVE = 4 }; /* OpenRTB mtype */

/* Campaigns that name a value: a row if they are more than one in 32, else ascending ranks. */
typedef struct {
    uint32_t at;    /* offset / 4 of the row or of the uint32_t ranks */
    uint32_t count; /* campaigns in it */
} sb_posting;

typedef struct {
    sb_posting included; /* campaigns that name the value in their include */
    sb_posting excluded;
    uint32_t row;    /* offset / 64: campaigns that accept a request with only this value, or 0;
                        if a request never has a second one, the postings are omitted */
    uint32_t parent; /* of SB_AD_DOMAIN, SB_AD_CATEGORY and SB_AD_LANGUAGE: the parent's value, or
                        SB_NONE */
    uint32_t key;    /* offset in the keys: uint32_t space << 24 | length, then the bytes */
} sb_value;

typedef struct {
    uint64_t open;     /* row: campaigns without an include in this dimension */
    uint32_t includes; /* campaigns with one */
    uint32_t excludes;
} sb_dimension;

/* A slot in the table of values: open addressing, linear, from the low bits of the key's hash. */
typedef struct {
    uint32_t tag;   /* the hash's high half */
    uint32_t value; /* SB_NONE: a free slot */
} sb_slot;

typedef struct {
    double lat, lon, cos_lat; /* radians */
    double limit;             /* sin^2(distance / 2R); 2 if the circle covers the earth */
} sb_circle;

/* A slot in the table of campaign ids: open addressing, linear, from `sb_id_slot`. */
typedef struct {
    uint32_t rank; /* or SB_GONE */
    uint32_t key;  /* as in sb_value, or SB_FREE */
} sb_id;

enum sb_creative_flag {
    SB_SECURE = 1,
    SB_LAST = 2, /* of its campaign */
    /* Of a video; neither of the first two if it is unknown. */
    SB_LINEAR = 4, SB_OVERLAY = 8, SB_NOT_SKIPPABLE = 16,
    /* Its media files differ by type: after it comes a rendition for each type, which is a creative
       with the limited fields of these files. The last rendition has SB_LAST, too. */
    SB_VARIED = 32, SB_RENDITION = 64
};

typedef struct {
    uint64_t seed;
    uint32_t w, h;
    int32_t duration; /* seconds, -1: none */
    uint32_t attributes, protocols; /* bits: those below SB_MASKED; native: kinds of assets */
    uint32_t apis;     /* bits */
    uint32_t language; /* value or SB_NONE */
    uint32_t bitrate;  /* kbit/s, 0: none */
    uint32_t lists; /* in the uint32_t pool: mimes, then other attributes, then other protocols */
    uint16_t mimes, other_attributes, other_protocols;
    uint8_t media, flags;
    uint8_t type; /* of a banner */
    uint8_t delivery; /* bits */
    uint16_t ads; /* of the markup; several are a pod */
} sb_creative;

/* The campaign's next creative after this one, which must not be its last. */
static inline const sb_creative *sb_next_creative(const sb_creative *one) {
    do one++; while (one->flags & SB_RENDITION);
    return one;
}

enum { SB_FAMILY = 8 }; /* in the flags, from this bit on: the taxonomy of the categories */

enum sb_campaign_flag {
    SB_CAPPED = 1, /* bids only for a recognised user */
    SB_TIMED = 2,  /* starts or ends */
    SB_DEALS = 4,  /* bids only on its deals */
    SB_CIRCLES = 8,
    SB_DSA = 16,      /* declares what the Digital Services Act asks for */
    SB_RENDERS = 32,  /* and renders it itself */
    SB_LEAVES = 64,   /* or leaves that to the publisher */
    SB_EXTRA = SB_TIMED | SB_DEALS | SB_CIRCLES, /* has an sb_extra */
};

/* The fields by which every candidate is checked. */
typedef struct {
    int64_t price;                     /* micro-USD CPM */
    uint32_t seat, bundle, advertiser; /* values or SB_NONE */
    uint32_t lists;                    /* in the uint32_t pool: categories, then deals; up to
                                          those of the creatives, the categories as mapped to
                                          other taxonomies, each between two markers; or, after an
                                          SB_NONE, for each category its equivalents there, and
                                          an SB_NONE */
    uint32_t creatives;                /* the first; the last is marked */
    uint16_t categories, flags;
} sb_campaign;

/* The fields for ties and answers. */
typedef struct {
    uint64_t seed;
    uint64_t payload; /* offset */
    uint32_t payload_size;
    uint32_t extra;
} sb_detail;

/* The fields that few campaigns have. */
typedef struct {
    int64_t starts_ms, ends_ms;
    uint32_t deals;
    uint32_t circles, n_circles;
} sb_extra;

typedef struct {
    uint64_t magic;
    uint32_t version;
    uint32_t campaigns;
    uint32_t blocks;
    uint32_t values;
    uint32_t capped;  /* campaigns with caps */
    uint32_t n_ids;   /* slots */
    uint32_t families; /* bits: taxonomies of the campaigns' categories */
    uint64_t size;
    uint64_t slots, slot_mask;
    uint64_t keys;
    uint64_t values_at;
    uint64_t dimensions;
    uint64_t active; /* row */
    uint64_t campaigns_at;
    uint64_t details;
    uint64_t extras;
    uint64_t creatives;
    uint64_t circles;
    uint64_t lists;
    uint64_t ids;
    uint64_t payload; /* the last section */
} sb_header;

static inline uint64_t sb_mix(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t sb_load(const unsigned char *at, size_t size) {
    uint64_t word = 0;
    memcpy(&word, at, size); /* 4 or 8 */
    return word;
}

/* Eight bytes of ASCII in lower case. */
static inline uint64_t sb_fold(uint64_t word) {
    uint64_t from_a = word + 0x3f3f3f3f3f3f3f3fULL, behind_z = word + 0x2525252525252525ULL;
    return word | (from_a & ~behind_z & 0x8080808080808080ULL) >> 2;
}

/* A key of less than eight bytes as a word, which has each of them. */
static inline uint64_t sb_short(const unsigned char *at, size_t size) {
    if (size >= 4) return sb_load(at, 4) | sb_load(at + size - 4, 4) << 32;
    if (size == 0) return 0;
    return (uint64_t)at[0] | (uint64_t)at[size / 2] << 8 | (uint64_t)at[size - 1] << 16;
}

/* The steps of a hash: its words in order, of which the last may overlap with the one before. */
static inline uint64_t sb_hash_first(uint64_t seed, size_t size) {
    return (seed + 1) * 0x9e3779b97f4a7c15ULL ^ size;
}
static inline uint64_t sb_hash_next(uint64_t hash, uint64_t word) {
    return sb_mix(hash ^ word, 0xa0761d6478bd642fULL);
}
static inline uint64_t sb_hash_last(uint64_t hash, uint64_t word) {
    return sb_mix(sb_mix(hash ^ word, 0xe7037ed1a0b428dbULL) ^ 0x8ebc6af09c88c6e3ULL,
                  0x589965cc75374cc3ULL);
}

/* A multiply-fold hash of a key; with `fold`, of its ASCII in lower case. `seed` distinguishes the
 * spaces. It is no secret: only keys of our own campaigns are stored, so a request cannot lengthen
 * a probe. */
static inline uint64_t sb_hash_of(uint64_t seed, const void *key, size_t size, int fold) {
    const unsigned char *at = (const unsigned char *)key, *last = at + size - 8;
    uint64_t word, hash = sb_hash_first(seed, size);
    if (size >= 8) {
        for (; at < last; at += 8) {
            word = sb_load(at, 8);
            hash = sb_hash_next(hash, fold ? sb_fold(word) : word);
        }
        word = sb_load(last, 8);
    } else {
        word = sb_short(at, size);
    }
    return sb_hash_last(hash, fold ? sb_fold(word) : word);
}

static inline uint64_t sb_hash(uint64_t seed, const void *key, size_t size) {
    return sb_hash_of(seed, key, size, 0);
}

/* A tie-breaking score: among equals, the highest score answers. */
static inline uint64_t sb_score(uint64_t auction, uint64_t seed) {
    return sb_mix(sb_mix(auction ^ seed, 0xa0761d6478bd642fULL) ^ seed, 0xe7037ed1a0b428dbULL);
}

static inline uint64_t sb_align(uint64_t offset) { return (offset + 63) & ~(uint64_t)63; }

/* The slot where the search for an id begins. */
static inline uint32_t sb_id_slot(const void *key, size_t size, uint32_t slots) {
    return (uint32_t)((__uint128_t)sb_hash(SB_CAMPAIGN_ID, key, size) * slots >> 64);
}

/* The entry of a campaign's id, or NULL. */
static inline const sb_id *sb_find_id(const sb_header *index, const void *key, size_t size) {
    const char *base = (const char *)index;
    const sb_id *ids = (const sb_id *)(base + index->ids);
    uint32_t at = sb_id_slot(key, size, index->n_ids);
    for (; ids[at].key != SB_FREE; at = at + 1 == index->n_ids ? 0 : at + 1) {
        const char *stored = base + index->keys + ids[at].key;
        uint32_t head;
        memcpy(&head, stored, 4);
        if (head == ((uint32_t)SB_CAMPAIGN_ID << 24 | (uint32_t)size)
                && memcmp(stored + 4, key, size) == 0)
            return ids + at;
    }
    return NULL;
}

static inline int sb_is_row(uint64_t count, uint64_t campaigns) { return count * 32 > campaigns; }

#endif
