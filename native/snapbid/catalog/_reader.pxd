"""Fields of decoded requests, read at their offsets in memory.

`Reader` returns the value of a field, borrowed from the struct; the functions interpret values. A
value of another type than OpenRTB's counts as absent.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.dict cimport PyDict_GetItem
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_Check, PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint16_t, uint32_t

from layout cimport SB_KEY_MAX, SB_MASKED

cdef extern from *:
    """
    #include <structmember.h>
    static inline Py_ssize_t sb_member(PyObject *descriptor) {
        return Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
            && ((PyMemberDescrObject *)descriptor)->d_member->type == T_OBJECT_EX
            ? ((PyMemberDescrObject *)descriptor)->d_member->offset : -1;
    }
    static inline PyObject *sb_field(PyObject *owner, Py_ssize_t offset) {
        PyObject *value = *(PyObject **)((char *)owner + offset);
        return value ? value : Py_None;
    }
    """
    Py_ssize_t sb_member(object descriptor)
    PyObject *sb_field(PyObject *owner, Py_ssize_t offset)

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    const char *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    bint PyList_CheckExact(object items)
    Py_ssize_t PyList_GET_SIZE(object items)
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t index)
    bint Py_IS_TYPE(object value, PyTypeObject *type)


# The structs and fields that are read. An enumerator is the struct's class name in upper case, then
# the field's name in OpenRTB. `Reader` derives the offsets from these names, so there is no second
# list that could disagree with them.
cpdef enum _Struct:
    BIDREQUEST, IMP, BANNER, FORMAT, VIDEO, AUDIO, NATIVE, PMP, DEAL, SITE, APP, DOOH, PUBLISHER, DEVICE
    GEO, USER, DATA, SEGMENT, REGS, REGSEXT, DSA, DURFLOORS
    N_STRUCTS

cpdef enum _Field:
    BIDREQUEST_ID, BIDREQUEST_SITE, BIDREQUEST_APP, BIDREQUEST_DOOH, BIDREQUEST_DEVICE
    BIDREQUEST_USER, BIDREQUEST_REGS, BIDREQUEST_BCAT, BIDREQUEST_ACAT, BIDREQUEST_CATTAX, BIDREQUEST_BADV, BIDREQUEST_BAPP
    BIDREQUEST_BSEAT, BIDREQUEST_WSEAT, BIDREQUEST_WLANG, BIDREQUEST_WLANGB
    BIDREQUEST_IMP, BIDREQUEST_TEST, BIDREQUEST_TMAX, BIDREQUEST_CUR
    IMP_BANNER, IMP_VIDEO, IMP_AUDIO, IMP_NATIVE, IMP_PMP, IMP_BIDFLOOR, IMP_BIDFLOORCUR, IMP_SECURE
    IMP_RWDD, IMP_INSTL, IMP_ID, IMP_QTY
    BANNER_W, BANNER_H, BANNER_FORMAT, BANNER_BATTR, BANNER_POS
    BANNER_BTYPE, BANNER_MIMES, BANNER_API
    FORMAT_W, FORMAT_H
    VIDEO_MIMES, VIDEO_MINDURATION, VIDEO_MAXDURATION, VIDEO_RQDDURS, VIDEO_PODDUR
    VIDEO_PROTOCOLS, VIDEO_PROTOCOL, VIDEO_BATTR
    VIDEO_LINEARITY, VIDEO_SKIP, VIDEO_MINBITRATE, VIDEO_MAXBITRATE, VIDEO_DELIVERY
    VIDEO_BOXINGALLOWED, VIDEO_W, VIDEO_H
    VIDEO_POS, VIDEO_PLCMT, VIDEO_PLACEMENT, VIDEO_API
    VIDEO_MINCPMPERSEC, VIDEO_DURFLOORS
    AUDIO_MIMES, AUDIO_MINDURATION, AUDIO_MAXDURATION, AUDIO_RQDDURS, AUDIO_PODDUR
    AUDIO_PROTOCOLS, AUDIO_BATTR
    AUDIO_MINBITRATE, AUDIO_MAXBITRATE, AUDIO_DELIVERY
    AUDIO_API, AUDIO_MINCPMPERSEC, AUDIO_DURFLOORS
    NATIVE_PLCMTTYPE, NATIVE_BATTR, NATIVE_API
    PMP_PRIVATE_AUCTION, PMP_DEALS
    DEAL_ID, DEAL_BIDFLOOR, DEAL_BIDFLOORCUR, DEAL_WSEAT, DEAL_WADOMAIN
    DEAL_GUAR, DEAL_MINCPMPERSEC, DEAL_DURFLOORS
    DURFLOORS_MINDUR, DURFLOORS_MAXDUR, DURFLOORS_BIDFLOOR
    SITE_DOMAIN, SITE_PAGE, SITE_CAT, SITE_SECTIONCAT, SITE_PAGECAT, SITE_PUBLISHER
    APP_BUNDLE, APP_CAT, APP_SECTIONCAT, APP_PAGECAT, APP_PUBLISHER
    DOOH_PUBLISHER
    PUBLISHER_ID
    DEVICE_UA, DEVICE_SUA, DEVICE_IP, DEVICE_IPV6, DEVICE_GEO, DEVICE_DEVICETYPE
    DEVICE_CONNECTIONTYPE
    DEVICE_OS, DEVICE_CARRIER, DEVICE_LANGUAGE, DEVICE_LANGB
    GEO_COUNTRY, GEO_REGION, GEO_CITY, GEO_ZIP, GEO_LAT, GEO_LON
    USER_DATA, USER_GEO
    DATA_SEGMENT
    SEGMENT_ID
    REGS_COPPA, REGS_GPC, REGS_GDPR, REGS_US_PRIVACY, REGS_GPP, REGS_GPP_SID, REGS_EXT
    REGSEXT_COPPA, REGSEXT_GPC, REGSEXT_GDPR, REGSEXT_US_PRIVACY, REGSEXT_GPP, REGSEXT_GPP_SID
    REGS_DSA, REGSEXT_DSA, DSA_DSAREQUIRED, DSA_PUBRENDER
    N_FIELDS

cdef class Reader:
    cdef tuple structs
    cdef object countries
    cdef object systems
    cdef object agents
    cdef object opt_outs
    cdef dict languages
    cdef dict categories
    cdef bytes first_flags
    cdef set noted
    cdef bint in_usd
    cdef Py_ssize_t offsets[N_FIELDS]
    cdef PyTypeObject *types[N_STRUCTS]

    cdef inline object get(self, object owner, int field):
        return <object>sb_field(<PyObject *>owner, self.offsets[field])

    cdef inline object child(self, object owner, int field, int struct):
        """Return a struct's field that is a struct, or None; None also for no struct."""
        return None if owner is None else self.checked(self.get(owner, field), struct)

    cdef inline object checked(self, object value, int struct):
        """Return the value, a struct of this class or None. Raises TypeError for another one."""
        if value is not None and not Py_IS_TYPE(value, self.types[struct]):
            self.refuse(value, struct)
        return value

    cdef int refuse(self, object value, int struct) except -1

    cdef inline uint32_t flags_of_first(self, int number) noexcept:
        """Flags of a category of the Content Taxonomy 1.0 (reference.taxonomies)."""
        return (<const uint16_t *>PyBytes_AS_STRING(self.first_flags))[number] if number >= 0 else 0

    cdef inline int note(self, str where) except -1:
        """Record that a restricting list has a meaningless entry."""
        self.noted.add(where)
        return 0


cdef inline bint filled(object items) noexcept:
    """Return whether this is a list with any item."""
    return PyList_CheckExact(items) and PyList_GET_SIZE(items) != 0


cdef inline object first(object items, Py_ssize_t most):
    """Return the first items of a list; an empty list for anything else."""
    if not PyList_CheckExact(items):
        return ()
    return items if PyList_GET_SIZE(items) <= most else (<list>items)[:most]


cdef inline bint is_too_long(object text) noexcept:
    """Return whether a text is too long to count, judged by its number of characters."""
    return PyUnicode_Check(text) and PyUnicode_GET_LENGTH(text) > SB_KEY_MAX


cdef inline bint integer(object number, int64_t *result) noexcept:
    """Convert a non-negative integer of 63 bits; anything else counts as absent."""
    cdef int overflow = 0
    if not PyLong_Check(number):
        return False
    result[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and result[0] >= 0


cdef inline bint is_one(object flag) noexcept:
    cdef int64_t number
    return integer(flag, &number) and number == 1


cdef inline bint is_zero(object flag) noexcept:
    cdef int64_t number
    return integer(flag, &number) and number == 0


cdef inline int64_t positive(object number) noexcept:
    """Convert a positive integer; 0 where it is absent, or out of range."""
    cdef int64_t value
    return value if integer(number, &value) else 0


cdef inline bint is_given(object text) noexcept:
    """Return whether this is neither None nor an empty text."""
    if PyUnicode_CheckExact(text):
        return PyUnicode_GET_LENGTH(text) != 0
    return text is not None


cdef inline object text_of(object text):
    return text if PyUnicode_CheckExact(text) else str(text)


cdef inline object recall(object memo, object text):
    """Return a memo's entry for a text; a missing one is computed (bidding.lookups.Memo)."""
    cdef PyObject *value = PyDict_GetItem(memo, text)
    return <object>value if value is not NULL else memo[text]


cdef inline uint32_t bits(object numbers) noexcept:
    """Return the bits of the numbers below SB_MASKED; the others have none."""
    cdef uint32_t mask = 0
    cdef int64_t number
    if filled(numbers):
        for item in <list>numbers:
            if item is not None and integer(item, &number) and number < SB_MASKED:
                mask |= <uint32_t>1 << number
    return mask
