"""Members of audiences, in a file that workers map."""

from typing import final

from _typeshed import ReadableBuffer

EPOCH_S: int  # of `until` in an entry, epoch s
ENTRY_SIZE: int  # bytes

def starts_of(entries: ReadableBuffer) -> bytearray:
    """Return where each prefix's entries begin, which a section has after its entries.

    Raises ValueError if the entries are not in ascending order.
    """

@final
class Members:
    """A view of mapped sections.

    `key`: the key of the hashes (`campaigns.persons`); `audiences` and `products` map numbers to
    names. Each section is a buffer with its number of entries. Raises ValueError for anything else.
    """

    def __new__(
        cls,
        key: bytes,
        audiences: dict[int, str],
        products: dict[int, str],
        over: ReadableBuffer,
        n_over: int,
        base: ReadableBuffer | None = None,
        n_base: int = 0,
    ) -> Members: ...
    def __len__(self) -> int:
        """Return the number of entries, including ended ones."""

    def look_up(self, member: int, now_ms: int) -> tuple[list[str], list[str]]:
        """Return the ids of the member's audiences, and the products that must not advertise to
        it."""

@final
class MemberBook:
    """The members in use, shared by all readers of a process; None until there are any."""

    @property
    def current(self) -> Members | None: ...
    def use(self, members: Members | None) -> None:
        """Use these members from now on."""
