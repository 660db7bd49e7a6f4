"""layout.h for Cython. Only declarations: nothing is imported at run time."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "layout.h" nogil:
    enum: SB_MAGIC, SB_VERSION, SB_BLOCK, SB_WORDS, SB_KEY_MAX, SB_NONE
    enum: SB_GONE, SB_FREE, SB_MASKED
    enum: SB_SSP, SB_COUNTRY, SB_REGION, SB_CITY, SB_POSTAL, SB_DEVICE_TYPE, SB_CONNECTION
    enum: SB_OS, SB_BROWSER, SB_CARRIER, SB_LANGUAGE, SB_INVENTORY, SB_DOMAIN, SB_BUNDLE
    enum: SB_PUBLISHER, SB_CATEGORY, SB_SEGMENT, SB_AUDIENCE, SB_PRODUCT, SB_HOUR
    enum: SB_DEAL, SB_POSITION, SB_PLACEMENT, SB_REWARDED, SB_INTERSTITIAL, SB_FORMAT
    enum: SB_DIMENSIONS, SB_OF_IMPRESSION, SB_AD_CATEGORY, SB_AD_DOMAIN, SB_AD_BUNDLE, SB_SEAT, SB_AD_LANGUAGE
    enum: SB_BANNER_ATTRIBUTE, SB_VIDEO_ATTRIBUTE, SB_AUDIO_ATTRIBUTE, SB_NATIVE_ATTRIBUTE
    enum: SB_BANNER_MIME, SB_VIDEO_MIME, SB_AUDIO_MIME, SB_VIDEO_PROTOCOL, SB_AUDIO_PROTOCOL, SB_CAMPAIGN_ID, SB_SPACES
    enum: SB_BANNER, SB_VIDEO, SB_AUDIO, SB_NATIVE
    enum: SB_SECURE, SB_LAST, SB_LINEAR, SB_OVERLAY, SB_NOT_SKIPPABLE, SB_VARIED, SB_RENDITION
    enum: SB_FAMILY, SB_TIMED, SB_CAPPED, SB_DEALS, SB_CIRCLES, SB_EXTRA
    enum: SB_DSA, SB_RENDERS, SB_LEAVES
    ctypedef struct sb_posting:
        uint32_t at, count
    ctypedef struct sb_value:
        sb_posting included, excluded
        uint32_t row, parent, key
    ctypedef struct sb_dimension:
        uint64_t open
        uint32_t includes, excludes
    ctypedef struct sb_slot:
        uint32_t tag, value
    ctypedef struct sb_circle:
        double lat, lon, cos_lat, limit
    ctypedef struct sb_id:
        uint32_t rank, key
    ctypedef struct sb_creative:
        uint64_t seed
        uint32_t w, h
        int32_t duration
        uint32_t attributes, protocols, apis, language, bitrate, lists
        uint16_t mimes, other_attributes, other_protocols
        uint8_t media, flags, type, delivery
        uint16_t ads
    const sb_creative *sb_next_creative(const sb_creative *one)
    ctypedef struct sb_campaign:
        int64_t price
        uint32_t seat, bundle, advertiser, lists, creatives
        uint16_t categories, flags
    ctypedef struct sb_detail:
        uint64_t seed, payload
        uint32_t payload_size, extra
    ctypedef struct sb_extra:
        int64_t starts_ms, ends_ms
        uint32_t deals, circles, n_circles
    ctypedef struct sb_header:
        uint64_t magic
        uint32_t version, campaigns, blocks, values, capped, n_ids, families
        uint64_t size, slots, slot_mask, keys, values_at, dimensions, active
        uint64_t campaigns_at, details, extras, creatives, circles, lists, ids, payload
    uint64_t sb_hash(uint64_t seed, const void *key, size_t size)
    uint64_t sb_score(uint64_t auction, uint64_t seed)
    bint sb_is_row(uint64_t count, uint64_t campaigns)
    uint32_t sb_id_slot(const void *key, size_t size, uint32_t slots)
    const sb_id *sb_find_id(const sb_header *index, const void *key, size_t size)
    uint64_t sb_align(uint64_t offset)
