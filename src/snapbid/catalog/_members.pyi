"""Members of audiences, in a file that workers map."""

from typing import final

from _typeshed import ReadableBuffer

EPOCH_S: int  # of `until` in an entry, epoch s
ENTRY_SIZE: int  # bytes

def starts_of(entries: ReadableBuffer) -> bytearray:
    """Build the table after a section's entries: where those of each prefix begin.

    Raises ValueError if the entries are not in ascending order.
    """

@final
class Members:
    """A view of a mapped file's sections: the base, and the changes over it.

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
        """Return the ids of a member's audiences, and the products that must not advertise to
        them."""

@final
class MemberBook:
    """The members in use, shared by all readers of a process; `current` is None until then."""

    @property
    def current(self) -> Members | None: ...
    def use(self, members: Members | None) -> None:
        """Use these members from now on."""
