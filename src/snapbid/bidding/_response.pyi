from collections.abc import Callable, Iterable
from typing import Self, final

from snapbid.ledger.bids.records import LedgerBid
from snapbid.ledger.budgets.limits import Limits

@final
class Template:
    """The constant parts of a creative's bid.

    A bid is written as the `pieces`, with a value between each piece and the next; `values` has the
    index of each value in `response.VALUES`. The notification URLs follow. `seat`: the text that
    follows a seat's last bid. `number` (campaign and creative, as packed by
    `ledger.bids.records.marked`) and `limits` are for the ledger. `campaign`, `creative` and
    `sent_micros` (the price in the answer's currency) are for the auction log. `click`: campaign
    and creative as encoded in click ids, if the markup has any. Raises ValueError or TypeError if
    `pieces`, `values` or `click` are malformed.
    """

    def __init__(
        self,
        number: int,
        price_micros: int,
        seat: bytes,
        pieces: tuple[bytes, ...],
        values: bytes,
        limits: Limits | None = None,
        campaign: str = "",
        creative: str = "",
        sent_micros: int = 0,
        click: bytes = b"",
    ) -> None: ...
    @property
    def number(self) -> int: ...
    @property
    def price_micros(self) -> int: ...
    @property
    def seat(self) -> bytes: ...
    @property
    def pieces(self) -> tuple[bytes, ...]: ...
    @property
    def values(self) -> bytes: ...
    @property
    def limits(self) -> Limits | None: ...
    @property
    def campaign(self) -> str: ...
    @property
    def creative(self) -> str: ...
    @property
    def sent_micros(self) -> int: ...
    @property
    def click(self) -> bytes: ...

@final
class Bid:
    """A bid before it is written; `imp_id` and `deal` are ids from the request.

    `cost_nanos`: the cost that the ledger counts, if it differs from the price (see `cost.py`).
    """

    def __init__(
        self, imp_id: str, template: Template, deal: str | None, cost_nanos: int | None = None
    ) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def imp_id(self) -> str: ...
    @property
    def template(self) -> Template: ...
    @property
    def deal(self) -> str | None: ...
    @property
    def cost_nanos(self) -> int | None: ...

def ledger_bids(bids: Iterable[Bid]) -> list[LedgerBid]:
    """Convert bids to the ledger's form."""

@final
class ClickStamp:
    """The part that all click ids of an answer share (campaigns/click_id.py)."""

@final
class ClickSigner:
    """A source of stamps for a worker's click ids.

    `number` and `keys` come from a `ClickKey`; `persons` is the `key` of a `PersonKey`.
    """

    def __init__(self, number: int, keys: bytes, persons: bytes) -> None: ...
    def stamp(self, descriptor: int, now_ms: int, names_auction: bool, person: int) -> ClickStamp:
        """Make the stamp for an answer at `now_ms` (epoch).

        `names_auction`: whether click ids include the auction, which is allowed only if user data
        may be used; `person`: the hash of the user's id, 0 for none.
        """

@final
class BidIds:
    """A generator of response ids: `process`, a dash, and a hexadecimal number."""

    def __new__(cls, process: bytes) -> Self: ...
    def next(self) -> bytes: ...

@final
class ResponseWriter:
    """A writer of bid responses (OpenRTB 2.6, 4.2), which fills in templates in one buffer.

    Each bid consists of its template's pieces, its notification URLs, and `end`. `urls`: for each
    notification URL, its start, and its path with the beginning of the query. All bids together
    take at most `most` bytes, unless the first bid alone takes more. `sign`, if given, makes
    `/n/TOKEN` from the auction id and the impression id; it is written between the start and the
    path of each URL.
    """

    def __init__(
        self,
        urls: tuple[tuple[bytes, bytes], ...],
        end: bytes,
        most: int,
        ids: BidIds,
        sign: Callable[[str, str], bytes] | None = None,
    ) -> None: ...
    def signed(self, sign: Callable[[str, str], bytes]) -> ResponseWriter:
        """Return a writer that signs its URLs; both writers draw ids from the same sequence."""

    def write(
        self,
        auction_id: str,
        bids: list[Bid],
        currency: str = "USD",
        bid_id: bytes | None = None,
        click: ClickStamp | None = None,
    ) -> bytes:
        """Write a response body.

        `bid_id` (letters, digits and dashes) is used instead of the next id from `BidIds`. Without
        `click`, click ids are written as dashes. Bids that do not fit are removed from the end of
        `bids`, in place; the first bid may have any length.
        """

    def length(self, auction_id: str, bid: Bid) -> int:
        """Return how many bytes a bid takes in an answer, not counting the bid's id."""
