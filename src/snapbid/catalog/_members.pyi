"""The members of audiences, in files that workers map."""

from typing import final

from _typeshed import ReadableBuffer

EPOCH_S: int  # of `until` in an entry, epoch s
ENTRY_SIZE: int  # bytes

def starts_of(entries: ReadableBuffer) -> bytearray:
    """Build the table that is stored after the entries, for look-ups by prefix.

    It has the index of the first entry for each prefix (a member's leading bits). Raises ValueError
    if the entries are not in ascending order.
    """

@final
class Members:
    """Audience members in mapped files: the base, and the changes that override it.

    `key`: the key of the hashes (`campaigns.persons`); `audiences` and `products` map numbers to
    names. `over` (the changes) and `base` hold `n_over` and `n_base` entries, each followed by the
    table that `starts_of` builds from its entries. Raises ValueError if the key, `over` or `base`
    has the wrong size.
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
        """Return the number of entries, including memberships that have ended."""

    def look_up(self, member: int, now_ms: int) -> tuple[list[str], list[str]]:
        """Return a member's audiences, and the products that must not advertise to this member."""

@final
class MemberBook:
    """Holds the members that a process's readers use; `current` is None before there are any."""

    @property
    def current(self) -> Members | None: ...
    def use(self, members: Members | None) -> None:
        """Use these members from now on."""
