from typing import final

from snapbid.catalog._members import MemberBook

@final
class Reader:
    """A reader of the fields of decoded requests.

    `structs`: the classes of a decoded request. The caches `countries`, `systems`, `agents` and
    `opt_outs` map codes to countries, spellings to operating systems, user agents to (system,
    browser), and US Privacy strings to whether they opt out. `languages` maps language codes to
    current ones. `categories` and `first_flags` come from `reference.taxonomies`. `in_usd`: bids
    are in USD. `book`: the members of audiences. `former_ids` maps SSPs to their former canonical
    ids, under which members may still be known. Raises ValueError or TypeError if a struct or a
    field is missing.
    """

    def __init__(
        self,
        structs: tuple[type, ...],
        countries: dict[str, str | None],
        systems: dict[str, str | None],
        agents: dict[str, tuple[str, str]],
        opt_outs: dict[str, bool],
        languages: dict[str, str],
        categories: dict[int, dict[str | int, tuple[str, int]]],
        first_flags: bytes,
        in_usd: bool = True,
        book: MemberBook | None = None,
        former_ids: dict[str, tuple[str, ...]] = {},
    ) -> None: ...
