"""The content of a request except its impressions: as terms, and as plain fields.

Only fields that some campaign needs are read; `Interest` has those.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from snapbid.catalog._reader cimport Reader
from snapbid.catalog._terms cimport Terms
from spelling cimport sb_slice

cdef struct Interest:  # of the campaigns of base and overlay
    uint32_t used  # bits: dimensions in which any campaign has an entry
    uint32_t families  # bits: taxonomies of categories
    bint has_caps  # some campaign bids only for a recognised user


cdef struct Asker:
    uint64_t auction
    int64_t now_ms
    bint has_wseat, has_languages, has_bcat, has_acat, located, recognised
    bint asks_dsa, needs_dsa  # for a campaign's declaration; for campaigns with one only
    uint32_t renders  # flags of such a campaign
    uint32_t family  # the taxonomy of its categories (reference.taxonomies); 0: a vendor's, or unknown
    uint32_t unmapped  # bits: families into which not all of bcat can be mapped
    bint blocks_unknown  # bcat has a category that its taxonomy does not have
    double lat, lon  # degrees




cdef class RequestReading:
    cdef Terms terms
    cdef Asker asker
    cdef object user  # the recognised user, for frequency caps; or None
    cdef Reader reader
    cdef Interest interest
    cdef object request
    cdef str ssp
    cdef str canonical
    # Texts that terms point into, other than the request's own.
    cdef object country_code, system, browser
    cdef str marker  # of categories in the request's taxonomy: "7:"
    cdef char region_key[64]

    cdef int read(self, Reader reader, object request, str ssp, str canonical, int64_t now_ms,
                  const Interest *interest) except -1
    cdef int forget(self) except -1
    # Steps of `read`.
    cdef int read_dsa(self, object regs) except -1
    cdef int read_categories_of_ads(self, object request) except -1
    cdef bint ad_categories(self, object texts, str where) except -1
    cdef bint category_parts(self, sb_slice entry, str where) except -1
    cdef int push_known(self, tuple entry, bint blocks) except -1
    cdef int push_first(self, sb_slice entry, str where) except -1
    cdef int push_other(self, sb_slice entry, str where) except -1
    cdef int read_auction(self, object id) except -1
    cdef object read_place(self, object device, object user)
    cdef object country(self, object geo)
    cdef int read_region(self, str country, object code) except -1
    cdef int read_user_data(self, object geo, object user) except -1
    cdef bint may_use_user_data(self) except -1
    cdef int read_device(self, object device) except -1
    cdef int read_language(self, object language) except -1
    cdef int read_publication(self, object site, object app, object dooh) except -1
    cdef bint read_domain(self, object url) except -1
    cdef int read_publisher(self, object owner, int field) except -1
    cdef int read_categories(self, object categories) except -1
