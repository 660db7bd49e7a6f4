"""What a request is read with (contract 3): the matcher reads the decoded structs where they lie
and asks here for what takes more than comparing. That are the rules with a standard or a table
behind them: privacy, countries, user agents, hosts, users, exchange rates.
"""

import math
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from snapbid.exchange import privacy, request
from snapbid.exchange.identity import recognise
from snapbid.exchange.request import BidRequest, Device, Text, Texts, User
from snapbid.match import vocabulary
from snapbid.match.catalog import Reader
from snapbid.reference import agents, countries
from snapbid.reference.rates import Rates

NO_RATE: Final = -1  # a floor that cannot be expressed in USD
UNREACHABLE: Final = 2**62  # a floor beyond any price, micro-USD
MAX_CACHED: Final = 256  # characters of what is kept

T = TypeVar("T")

STRUCTS: Final = (
    BidRequest, request.Imp, request.Banner, request.Format, request.Video, request.Audio,
    request.Pmp, request.Deal, request.Site, request.App, request.Dooh, request.Publisher, Device,
    request.Geo, User, request.Data, request.Segment, request.Regs, request.RegsExt,
)  # fmt: skip
"""In the order in which the matcher names their fields."""

_NO_DEVICE: Final = Device()
_NO_USER: Final = User()


class CountryOfAddress(Protocol):
    """A geo database."""

    def country(self, ip: str) -> str | None: ...


class Memo(dict[str, T]):
    """What a function says of texts, the short ones kept; cleared when it is full."""

    def __init__(self, of: Callable[[str], T], most: int) -> None:
        super().__init__()
        self._of = of
        self._most = most

    def __missing__(self, text: str) -> T:
        found = self._of(text)
        if len(text) <= MAX_CACHED:
            if len(self) >= self._most:
                self.clear()
            self[text] = found
        return found


_COUNTRIES: Final = Memo(countries.alpha3, 4_096)
_SYSTEMS: Final = Memo(agents.fold_os, 4_096)
_AGENTS: Final = Memo(agents.parse, 16_384)
_OPT_OUTS: Final = Memo(privacy.usp_opts_out, 4_096)
_HOSTS: Final = Memo(vocabulary.host, 65_536)


class References(Reader):
    """What requests are read with. Without `needs_user` nobody is recognised; `gvl_id` is the
    bidder's own in the Global Vendor List.
    """

    def __init__(
        self,
        geo: CountryOfAddress,
        rates: Rates,
        *,
        needs_user: bool = True,
        gvl_id: int | None = None,
    ) -> None:
        super().__init__(STRUCTS, _COUNTRIES, _SYSTEMS, _AGENTS, _OPT_OUTS)
        self._geo = geo
        self._rates = rates
        self._needs_user = needs_user
        self._gvl_id = gvl_id

    def country_of_address(self, ip: Text, ipv6: Text) -> str | None:
        """The country (alpha-3) that the geo database has for one of the addresses."""
        for address in (ip, ipv6):
            if address and (country := self._geo.country(str(address))):
                return country
        return None

    def region(self, country: str, code: str) -> str | None:
        """A region's normal form, see `vocabulary.region`."""
        return vocabulary.region(country, code)

    def host(self, url: str) -> str | None:
        """The host of a URL or a bare domain, see `vocabulary.host`."""
        return _HOSTS[url]

    def may_use_user_data(self, request: BidRequest) -> bool:
        """Whether the regulations that the request names allow it; 2.5 has them in `ext`."""
        regs, user = request.regs, request.user or _NO_USER
        if regs is None:
            return True
        ext = regs.ext
        old: Any = ext if ext is not None else regs
        consent = user.consent or (user.ext.consent if user.ext is not None else None)
        return privacy.may_use_user_data(
            coppa=regs.coppa,
            gdpr=regs.gdpr if regs.gdpr is not None else old.gdpr,
            consent=consent,
            us_privacy=regs.us_privacy or old.us_privacy,
            gpp=regs.gpp or old.gpp,
            gpp_sid=regs.gpp_sid or old.gpp_sid or (),
            gvl_id=self._gvl_id,
        )

    def person(self, request: BidRequest) -> str | None:
        """Whom frequency caps count for."""
        if not self._needs_user:
            return None
        return recognise(request.device or _NO_DEVICE, request.user or _NO_USER)

    def floor_micros(self, amount: float | None, currency: str | None) -> int:
        """A floor as integer micro-USD CPM, rounded up; negative and NaN are absent; NO_RATE."""
        if not amount or not amount > 0:
            return 0
        if amount == math.inf:
            return UNREACHABLE
        micros = self._rates.floor_micros(amount, currency or "USD")
        if micros is None:
            return NO_RATE
        return min(micros, UNREACHABLE)


def accepts_usd(cur: Texts) -> bool:
    """Whether the request's currencies, if it names any, include USD."""
    if not cur or "USD" in cur:
        return True
    named = [one for one in cur if one is not None and one != ""]
    return not named or any(str(one).upper() == "USD" for one in named)
