# cython: auto_pickle=False, autotestdict=False
"""See _request.pxd. Contract 3 says where each value is read from."""

cimport cython
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.unicode cimport (PyUnicode_AsUTF8AndSize, PyUnicode_Check, PyUnicode_CheckExact,
                              PyUnicode_DecodeUTF8)
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcpy, memset

from layout cimport *
from snapbid.catalog._reader cimport *
from snapbid.catalog._terms cimport *
from spelling cimport *

cdef enum:
    MAX_ENTRIES = 1000  # of a list that does not restrict; restricting lists are read in full
    HOUR_MS = 3600000
    WEEK_HOURS = 168
    EPOCH_HOUR = 72  # 1 January 1970 was a Thursday

cdef str BCAT = "bcat"  # the list that blocks categories

# Number of a taxonomy in AdCOM's list -> its family, as in reference.taxonomies.
cdef uint8_t[10] FAMILIES = [0, 1, 2, 3, 4, 2, 2, 7, 8, 7]


cdef inline bint is_plain_host(str text) noexcept:
    """Return whether this is a bare ASCII host name: labels of letters, digits, - and _."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text), i
    cdef const char *raw
    cdef char character, before = c'.'
    if not PyUnicode_IS_COMPACT_ASCII(text) or size > SB_KEY_MAX:
        return False
    raw = <const char *>PyUnicode_DATA(text)
    for i in range(size):
        character = raw[i]
        if character == c'.':
            if before == c'.':
                return False
        elif not (c'a' <= character <= c'z' or c'A' <= character <= c'Z'
                  or c'0' <= character <= c'9' or character == c'-' or character == c'_'):
            return False
        before = character
    return before != c'.'


@cython.no_gc  # it is part of no cycle
@cython.final
cdef class RequestReading:

    def __cinit__(self):
        self.terms = Terms()

    cdef int forget(self) except -1:
        """Release the request."""
        self.terms.kept = None
        self.reader = None
        self.request = self.ssp = self.canonical = self.user = None
        self.country_code = self.system = self.browser = self.marker = None
        return 0

    cdef int read(self, Reader reader, object request, str ssp, str canonical, int64_t now_ms,
                  const Interest *interest) except -1:
        """Read a request to an SSP, at a time (UTC epoch ms)."""
        cdef Terms terms = self.terms
        cdef uint32_t used = interest.used
        self.reader = reader
        self.request = request
        self.ssp = ssp
        self.canonical = canonical
        self.interest = interest[0]
        self.user = None
        memset(&self.asker, 0, sizeof(self.asker))
        self.asker.now_ms = now_ms
        device = reader.child(request, BIDREQUEST_DEVICE, DEVICE)
        user = reader.child(request, BIDREQUEST_USER, USER)
        site = reader.child(request, BIDREQUEST_SITE, SITE)
        app = reader.child(request, BIDREQUEST_APP, APP)
        dooh = reader.child(request, BIDREQUEST_DOOH, DOOH)
        terms.clear()
        self.read_auction(reader.get(request, BIDREQUEST_ID))
        if used >> SB_SSP & 1:
            terms.begin(SB_SSP)
            terms.text(SB_SSP, self.ssp, False)
            if self.canonical != self.ssp:
                terms.text(SB_SSP, self.canonical, False)
            terms.end(SB_SSP)
        geo = self.read_place(device, user)
        self.read_user_data(geo, user)
        if device is not None:
            self.read_device(device)
        terms.begin(SB_INVENTORY)
        if used >> SB_INVENTORY & 1:
            if site is not None:
                terms.text(SB_INVENTORY, "site", False)
            if app is not None:
                terms.text(SB_INVENTORY, "app", False)
            if dooh is not None:
                terms.text(SB_INVENTORY, "dooh", False)
        terms.end(SB_INVENTORY)
        self.read_publication(site, app, dooh)
        terms.begin(SB_HOUR)
        if used >> SB_HOUR & 1:
            terms.push_number(
                SB_HOUR, (self.asker.now_ms // HOUR_MS + EPOCH_HOUR) % WEEK_HOURS)
        terms.end(SB_HOUR)
        self.read_categories_of_ads(request)
        terms.begin(BLOCKED)
        self.asker.has_bcat = self.ad_categories(reader.get(request, BIDREQUEST_BCAT), BCAT)
        terms.entries(reader, SB_AD_DOMAIN, reader.get(request, BIDREQUEST_BADV), "badv")
        terms.entries(reader, SB_AD_BUNDLE, reader.get(request, BIDREQUEST_BAPP), "bapp")
        terms.entries(reader, SB_SEAT, reader.get(request, BIDREQUEST_BSEAT), "bseat")
        terms.end(BLOCKED)
        terms.begin(SEATS)
        self.asker.has_wseat = terms.entries(
            reader, SB_SEAT, reader.get(request, BIDREQUEST_WSEAT), "wseat")
        terms.end(SEATS)
        terms.begin(LANGUAGES)
        self.asker.has_languages = terms.entries(
            reader, SB_AD_LANGUAGE, reader.get(request, BIDREQUEST_WLANG), "wlang")
        self.asker.has_languages |= terms.entries(
            reader, SB_AD_LANGUAGE, reader.get(request, BIDREQUEST_WLANGB), "wlangb")
        terms.end(LANGUAGES)
        self.read_dsa(reader.child(request, BIDREQUEST_REGS, REGS))
        return 0

    cdef int read_dsa(self, object regs) except -1:
        """Read what the Digital Services Act requires of a bid, from OpenRTB 2.5's `ext`, too."""
        cdef Reader reader = self.reader
        cdef int64_t number
        if regs is None:
            return 0
        dsa = reader.child(regs, REGS_DSA, DSA)
        if dsa is None:
            dsa = reader.child(reader.child(regs, REGS_EXT, REGSEXT), REGSEXT_DSA, DSA)
        if dsa is None or not integer(reader.get(dsa, DSA_DSAREQUIRED), &number):
            return 0
        self.asker.asks_dsa = 1 <= number <= 3
        self.asker.needs_dsa = 2 <= number <= 3
        if integer(reader.get(dsa, DSA_PUBRENDER), &number):
            self.asker.renders = SB_RENDERS if number == 0 else SB_LEAVES if number == 2 else 0
        return 0

    cdef int read_categories_of_ads(self, object request) except -1:
        """Read the taxonomy, the only categories that may bid, and the marker of mapped ones."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef int64_t number = 0
        cattax = reader.get(request, BIDREQUEST_CATTAX)
        self.asker.family = 1
        if cattax is not None and integer(cattax, &number) and number:
            self.asker.family = FAMILIES[number] if number < <int64_t>sizeof(FAMILIES) else 0
        if self.asker.family == 0:
            self.marker = f"{number}:"
        elif self.interest.families & ~(1u << self.asker.family):
            self.marker = f"{self.asker.family}:"
        else:
            self.marker = None  # there are no others
        terms.begin(CATEGORIES)
        self.asker.has_acat = self.ad_categories(reader.get(request, BIDREQUEST_ACAT), "acat")
        terms.end(CATEGORIES)
        terms.begin(MARKER)
        if self.marker is not None:
            terms.text(SB_AD_CATEGORY, self.marker, False)
        terms.end(MARKER)
        return 0

    cdef bint ad_categories(self, object texts, str where) except -1:
        """Add terms for categories in the request's taxonomy; return whether there is any.

        A category that its taxonomy does not have is noted, and if it is blocked might be any; but
        one below a known category is part of that.
        """
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef bint any = False
        cdef uint32_t flags, unmapped = 0
        cdef sb_slice entry
        cdef Py_ssize_t size
        cdef PyObject *found
        cdef dict known = None
        if not filled(texts):
            return False
        if self.asker.family != 1:
            known = reader.categories.get(self.asker.family)
        for text in <list>texts:
            if PyUnicode_CheckExact(text) and PyUnicode_IS_COMPACT_ASCII(text):
                entry.at = <const char *>PyUnicode_DATA(text)
                entry.size = PyUnicode_GET_LENGTH(text)
                if entry.size == 0:
                    continue
                if self.asker.family == 1:
                    flags = reader.flags_of_first(sb_first(entry.at, entry.size))
                    if flags:
                        any = True
                        unmapped |= flags
                        terms.push_text(SB_AD_CATEGORY, entry.at, entry.size, False)
                        continue
            elif text is None:
                continue
            if known is not None:
                found = PyDict_GetItem(known, text)
                if found is not NULL:
                    any = True
                    self.push_known(<object>found, where is BCAT)
                    continue
            if not PyUnicode_CheckExact(text) or not PyUnicode_IS_COMPACT_ASCII(text):
                entry.at = terms.foreign(text, &size)
                entry.size = size
            any |= self.category_parts(entry, where)
        if where is BCAT:
            self.asker.unmapped |= unmapped
        return any

    cdef int push_known(self, tuple entry, bint blocks) except -1:
        """Add a term for a category, as `reference.taxonomies.listed` has it."""
        if blocks:
            self.asker.unmapped |= <uint32_t>entry[1]
        return self.terms.text(SB_AD_CATEGORY, entry[0], False)

    cdef bint category_parts(self, sb_slice entry, str where) except -1:
        """Add terms for a comma-separated entry; return whether there is any."""
        cdef const char *end = entry.at + entry.size
        cdef const char *at = entry.at
        cdef sb_slice part
        cdef bint any = False
        while at <= end:
            part = sb_next_part(&at, end)
            if part.size:
                any = True
                if self.asker.family == 1:
                    self.push_first(part, where)
                else:
                    self.push_other(part, where)
        return any

    cdef int push_first(self, sb_slice entry, str where) except -1:
        """Add a term for a category of the Content Taxonomy 1.0, however it is spelled."""
        cdef char[SB_FIRST_SIZE] plain
        cdef Py_ssize_t size = sb_spell_first(entry, plain)
        cdef int number = sb_first(plain, size)
        cdef uint32_t flags = self.reader.flags_of_first(number)
        if flags == 0:
            self.reader.note(where)
            if where is BCAT and number > 0:  # a subcategory is part of its category
                flags = self.reader.flags_of_first(number - number % SB_MAX_SECOND)
                size = <const char *>memchr(plain, c'-', size) - plain if flags else 0
        if flags:
            if where is BCAT:
                self.asker.unmapped |= flags
            self.terms.push_copy(SB_AD_CATEGORY, plain, size, False)
        elif where is BCAT:
            self.asker.blocks_unknown = True
        return 0

    cdef int push_other(self, sb_slice entry, str where) except -1:
        """Add a term for a category of another taxonomy, however it is spelled."""
        cdef str text
        cdef dict known
        cdef PyObject *found
        if entry.size > SB_KEY_MAX:
            return 0
        text = PyUnicode_DecodeUTF8(entry.at, entry.size, "replace")
        known = self.reader.categories.get(self.asker.family)
        if known is None:  # a vendor's own
            text = f"{self.marker}{text}"
            self.terms.keep(text)
            return self.terms.text(SB_AD_CATEGORY, text, False)
        found = PyDict_GetItem(known, "".join(text.lower().split()))
        if found is not NULL:
            return self.push_known(<object>found, where is BCAT)
        self.reader.note(where)
        if where is BCAT:
            self.asker.blocks_unknown = True
        return 0

    cdef int read_auction(self, object id) except -1:
        cdef Py_ssize_t size
        cdef const char *raw = PyUnicode_AsUTF8AndSize(id, &size)
        self.asker.auction = sb_hash(0, raw, size)
        return 0

    cdef object read_place(self, object device, object user):
        """Read country, region and city; return the geo object that they are read from, or None."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        geo = reader.child(device, DEVICE_GEO, GEO)
        country = self.country(geo)
        if country is None:
            named = reader.child(user, USER_GEO, GEO)
            country = self.country(named)
            if country is not None:
                geo = named
            elif device is not None and used & (1u << SB_COUNTRY | 1u << SB_REGION):
                country = (<object>reader).country_of_address(
                    reader.get(device, DEVICE_IP), reader.get(device, DEVICE_IPV6))
        terms.begin(SB_COUNTRY)
        if country is not None:
            self.country_code = country
            terms.text(SB_COUNTRY, country, False)
        terms.end(SB_COUNTRY)
        terms.begin(SB_REGION)
        if geo is not None and country is not None and used >> SB_REGION & 1:
            self.read_region(country, reader.get(geo, GEO_REGION))
        terms.end(SB_REGION)
        terms.begin(SB_CITY)
        if geo is not None and used >> SB_CITY & 1:
            terms.text(SB_CITY, reader.get(geo, GEO_CITY), True)
        terms.end(SB_CITY)
        return geo

    cdef object country(self, object geo):
        """Return the country (alpha-3) that a geo object names, or None."""
        if geo is None:
            return None
        code = self.reader.get(geo, GEO_COUNTRY)
        if not is_given(code):
            return None
        return recall(self.reader.countries, text_of(code))

    cdef int read_region(self, str country, object code) except -1:
        """Read a region, `usa-ca`; campaigns.vocabulary.region has its normal form."""
        cdef Terms terms = self.terms
        cdef Py_ssize_t size, length
        cdef const char *raw
        if not is_given(code) or is_too_long(code):
            return 0
        if PyUnicode_CheckExact(code) and PyUnicode_IS_COMPACT_ASCII(code):
            raw = <const char *>PyUnicode_DATA(code)
            size = PyUnicode_GET_LENGTH(code)
            length = PyUnicode_GET_LENGTH(country)
            if (size + length + 1 <= <Py_ssize_t>sizeof(self.region_key)
                    and memchr(raw, c'-', size) is NULL):
                memcpy(self.region_key, PyUnicode_DATA(country), length)
                self.region_key[length] = c'-'
                memcpy(self.region_key + length + 1, raw, size)
                terms.push_text(SB_REGION, self.region_key, length + 1 + size, True)
                return 0
        region = (<object>self.reader).region(country, str(code))
        if region is not None:
            terms.keep(region)
            terms.text(SB_REGION, region, False)
        return 0

    cdef int read_user_data(self, object geo, object user) except -1:
        """Read what may be used only if the request's privacy signals allow it (contract 3)."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        cdef double at_lat, at_lon
        postal = data = lat = lon = None
        terms.begin(SB_POSTAL)
        terms.end(SB_POSTAL)
        terms.begin(SB_SEGMENT)
        terms.end(SB_SEGMENT)
        if geo is not None:
            lat = reader.get(geo, GEO_LAT)
            lon = reader.get(geo, GEO_LON)
            if used >> SB_POSTAL & 1:
                postal = reader.get(geo, GEO_ZIP)
        if user is not None and used >> SB_SEGMENT & 1:
            data = reader.get(user, USER_DATA)
        if lat is None and postal is None and data is None and not self.interest.has_caps:
            return 0
        if not self.may_use_user_data():
            return 0
        if self.interest.has_caps:
            self.user = (<object>reader).person(self.request)
            self.asker.recognised = self.user is not None
        if PyFloat_CheckExact(lat) and PyFloat_CheckExact(lon):
            at_lat = PyFloat_AS_DOUBLE(lat)
            at_lon = PyFloat_AS_DOUBLE(lon)
            if -90 <= at_lat <= 90 and -180 <= at_lon <= 180:
                self.asker.located = True
                self.asker.lat = at_lat
                self.asker.lon = at_lon
        if postal is not None:
            terms.begin(SB_POSTAL)
            terms.text(SB_POSTAL, postal, True)
            terms.end(SB_POSTAL)
        terms.begin(SB_SEGMENT)
        for item in first(data, MAX_ENTRIES):
            segments = reader.get(reader.checked(item, DATA), DATA_SEGMENT)
            for segment in first(segments, MAX_ENTRIES):
                terms.text(SB_SEGMENT, reader.get(
                    reader.checked(segment, SEGMENT), SEGMENT_ID), False)
        terms.end(SB_SEGMENT)
        return 0

    cdef bint may_use_user_data(self) except -1:
        """Return the verdict of bidding.privacy. It is called if a consent string or a GPP string
        decides; for a US Privacy string alone the memo has its verdict.
        """
        cdef Reader reader = self.reader
        regs = reader.child(self.request, BIDREQUEST_REGS, REGS)
        if regs is None:
            return True
        if (is_one(reader.get(regs, REGS_GDPR)) or filled(reader.get(regs, REGS_GPP_SID))
                or is_given(reader.get(regs, REGS_GPP))):
            return (<object>reader).may_use_user_data(self.request)
        if is_one(reader.get(regs, REGS_COPPA)) or is_one(reader.get(regs, REGS_GPC)):
            return False
        text = reader.get(regs, REGS_US_PRIVACY)
        if is_given(text) and recall(reader.opt_outs, text):
            return False
        ext = reader.child(regs, REGS_EXT, REGSEXT)
        if ext is None:
            return True
        if (is_one(reader.get(ext, REGSEXT_GDPR)) or filled(reader.get(ext, REGSEXT_GPP_SID))
                or is_given(reader.get(ext, REGSEXT_GPP))):
            return (<object>reader).may_use_user_data(self.request)
        if is_one(reader.get(ext, REGSEXT_COPPA)) or is_one(reader.get(ext, REGSEXT_GPC)):
            return False
        text = reader.get(ext, REGSEXT_US_PRIVACY)
        return not is_given(text) or not recall(reader.opt_outs, text)

    cdef int read_device(self, object device) except -1:
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        os = browser = None
        if used >> SB_DEVICE_TYPE & 1:
            terms.begin(SB_DEVICE_TYPE)
            terms.number(SB_DEVICE_TYPE, reader.get(device, DEVICE_DEVICETYPE))
            terms.end(SB_DEVICE_TYPE)
        if used >> SB_CONNECTION & 1:
            terms.begin(SB_CONNECTION)
            terms.number(SB_CONNECTION, reader.get(device, DEVICE_CONNECTIONTYPE))
            terms.end(SB_CONNECTION)
        if used & (1u << SB_OS | 1u << SB_BROWSER):
            hints = reader.get(device, DEVICE_SUA)
            if hints is not None:
                os, browser = (<object>reader).hinted(hints)
            if os is None and used >> SB_OS & 1:
                os = reader.get(device, DEVICE_OS)
                os = recall(reader.systems, text_of(os)) if is_given(os) else None
            agent = reader.get(device, DEVICE_UA)
            if is_given(agent) and (os is None or browser is None and used >> SB_BROWSER & 1):
                system, family = recall(reader.agents, text_of(agent))
                os = os or system
                browser = browser or family
            terms.begin(SB_OS)
            if os is not None and used >> SB_OS & 1:
                self.system = os
                terms.text(SB_OS, os, False)
            terms.end(SB_OS)
            terms.begin(SB_BROWSER)
            if browser is not None:
                self.browser = browser
                terms.text(SB_BROWSER, browser, False)
            terms.end(SB_BROWSER)
        if used >> SB_CARRIER & 1:
            terms.begin(SB_CARRIER)
            terms.text(SB_CARRIER, reader.get(device, DEVICE_CARRIER), True)
            terms.end(SB_CARRIER)
        if used >> SB_LANGUAGE & 1:
            terms.begin(SB_LANGUAGE)
            language = reader.get(device, DEVICE_LANGUAGE)
            if not language or is_too_long(language):
                language = reader.get(device, DEVICE_LANGB)
            self.read_language(language)
            terms.end(SB_LANGUAGE)
        return 0

    cdef int read_language(self, object language) except -1:
        """Read the primary subtag, as campaigns.vocabulary.primary_subtag does."""
        cdef Terms terms = self.terms
        cdef Py_ssize_t size
        cdef sb_slice tag
        if not PyUnicode_Check(language) or is_too_long(language):
            return 0
        tag.at = terms.encoded(language, &size)
        tag.size = size
        if sb_is_todays(tag):
            terms.push_text(SB_LANGUAGE, tag.at, 2, True)
        else:
            terms.push_language(self.reader, SB_LANGUAGE, sb_trimmed(tag.at, tag.at + size))
        return 0

    cdef int read_publication(self, object site, object app, object dooh) except -1:
        """Read domain, bundle, publishers and categories."""
        cdef Terms terms = self.terms
        cdef Reader reader = self.reader
        cdef uint32_t used = self.interest.used
        terms.begin(SB_DOMAIN)
        if site is not None and used >> SB_DOMAIN & 1:
            if not self.read_domain(reader.get(site, SITE_DOMAIN)):
                self.read_domain(reader.get(site, SITE_PAGE))
        terms.end(SB_DOMAIN)
        terms.begin(SB_BUNDLE)
        if app is not None and used >> SB_BUNDLE & 1:
            terms.text(SB_BUNDLE, reader.get(app, APP_BUNDLE), False)
        terms.end(SB_BUNDLE)
        terms.begin(SB_PUBLISHER)
        if used >> SB_PUBLISHER & 1:
            self.read_publisher(site, SITE_PUBLISHER)
            self.read_publisher(app, APP_PUBLISHER)
            self.read_publisher(dooh, DOOH_PUBLISHER)
        terms.end(SB_PUBLISHER)
        terms.begin(SB_CATEGORY)
        if used >> SB_CATEGORY & 1:
            if site is not None:
                self.read_categories(reader.get(site, SITE_CAT))
                self.read_categories(reader.get(site, SITE_SECTIONCAT))
                self.read_categories(reader.get(site, SITE_PAGECAT))
            if app is not None:
                self.read_categories(reader.get(app, APP_CAT))
                self.read_categories(reader.get(app, APP_SECTIONCAT))
                self.read_categories(reader.get(app, APP_PAGECAT))
        terms.end(SB_CATEGORY)
        return 0

    cdef bint read_domain(self, object url) except -1:
        """Read the domain and its parents; return whether there is one. Anything but a bare ASCII
        host name is left to campaigns.domains.host.
        """
        cdef Terms terms = self.terms
        cdef Py_ssize_t size, i
        cdef const char *raw
        if not is_given(url):
            return False
        if not (PyUnicode_CheckExact(url) and is_plain_host(url)):
            url = (<object>self.reader).host(str(url))
            if url is None or is_too_long(url):
                return False
            terms.keep(url)
        raw = terms.encoded(url, &size)
        if size > SB_KEY_MAX:
            return False
        while sb_has_www(raw, size):
            raw += 4
            size -= 4
        for i in range(size):
            if i == 0 or raw[i - 1] == c'.':
                terms.push_text(SB_DOMAIN, raw + i, size - i, True)
        return True

    cdef int read_publisher(self, object owner, int field) except -1:
        cdef Terms terms = self.terms
        publisher = self.reader.child(owner, field, PUBLISHER)
        if publisher is not None:
            terms.text(SB_PUBLISHER, self.reader.get(publisher, PUBLISHER_ID), False)
        return 0

    cdef int read_categories(self, object categories) except -1:
        """Read each category and its IAB parent."""
        cdef Terms terms = self.terms
        cdef Py_ssize_t size
        cdef const char *raw
        cdef const char *dash
        cdef uint32_t count = 0
        if not filled(categories):
            return 0
        for category in <list>categories:
            if not is_given(category):
                continue
            count += 1
            if count > MAX_ENTRIES:
                break
            terms.text(SB_CATEGORY, category, False)
            if PyUnicode_Check(category) and not is_too_long(category):
                raw = terms.encoded(category, &size)
                dash = <const char *>memchr(raw, c'-', size)
                if dash is not NULL and size <= SB_KEY_MAX:
                    terms.push_text(SB_CATEGORY, raw, dash - raw, False)
        return 0
