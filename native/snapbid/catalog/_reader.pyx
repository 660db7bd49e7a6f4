# cython: auto_pickle=False, autotestdict=False
"""See _reader.pxd."""

from spelling cimport SB_MAX_FIRST, SB_MAX_SECOND

cdef class Reader:
    """A reader of the fields of decoded requests; bidding.lookups.Lookups has the callbacks.

    structs: the classes of the decoded request, among them those of `_Struct` with the fields of
    `_Field`. Their fields are read at their offsets in memory, so each object's class is checked
    first. The memos (bidding.lookups.Memo) have countries by code, systems by spelling, (system,
    browser) by user agent, and whether a US Privacy string opts out. The tables have current
    language codes by other ones, and categories (reference.taxonomies, `listed` and `first_flags`).
    noted: receives the restricting lists with a meaningless entry. in_usd: bids are in USD. Raises
    ValueError or TypeError if a struct or a field is missing.
    """

    def __init__(self, tuple structs, object countries, object systems, object agents,
                 object opt_outs, dict languages not None, dict categories not None,
                 bytes first_flags not None, set noted not None, bint in_usd=True):
        classes = {struct.__name__.upper(): struct for struct in structs}
        names = [number.name for number in _Struct if number != N_STRUCTS]
        if not set(names) <= set(classes):
            raise ValueError(f"not the structs of a request, which are {', '.join(names)}")
        self.countries = countries
        self.systems = systems
        self.agents = agents
        self.opt_outs = opt_outs
        self.languages, self.categories, self.noted = languages, categories, noted
        if len(first_flags) != 2 * SB_MAX_FIRST * SB_MAX_SECOND:
            raise ValueError("not the flags of the Content Taxonomy 1.0")
        self.first_flags = first_flags
        self.in_usd = in_usd
        for number in _Struct:
            if number != N_STRUCTS:
                self.types[<int>number] = <PyTypeObject *>classes[number.name]
        for field in _Field:
            if field != N_FIELDS:
                owner, _, name = field.name.lower().partition("_")
                struct = classes[owner.upper()]
                self.offsets[<int>field] = sb_member(struct.__dict__.get(name))
                if self.offsets[<int>field] < 0:
                    raise TypeError(f"{struct.__name__} has no member {name} to read")
        self.structs = tuple(classes[name] for name in names)

    cdef int refuse(self, object value, int struct) except -1:
        raise TypeError(f"{type(value).__name__} instead of {self.structs[struct].__name__}")
