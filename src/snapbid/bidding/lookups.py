"""Lookups for the matcher while it reads a request (contract 3).

The matcher reads plain fields straight from the decoded structs in memory. It calls back into
Python for rules that depend on standards or reference data: privacy, countries, user agents, hosts,
user ids and exchange rates.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Final, Protocol, TypeVar

import msgspec

from snapbid.bidding import gpp, native_answer, privacy, request
from snapbid.bidding.bounds import MAX_ENTRIES
from snapbid.bidding.cost import MAX_QUANTITY
from snapbid.bidding.identity import recognise
from snapbid.bidding.native_request import NATIVE_REQUESTS, NativeRequest
from snapbid.bidding.request import (
    BidRequest,
    Device,
    Dsa,
    Native,
    Regs,
    RegsExt,
    Text,
    Texts,
    User,
    UserAgent,
)
from snapbid.bidding.response import ClickSigner
from snapbid.campaigns import vocabulary
from snapbid.campaigns.click_id import ClickKey
from snapbid.campaigns.domains import host, hosts_in
from snapbid.campaigns.persons import PersonKey, is_placeholder
from snapbid.campaigns.suppression import Suppression
from snapbid.catalog._members import MemberBook
from snapbid.catalog.catalog import Index, Reader
from snapbid.catalog.payload import decode_payload
from snapbid.reference import agents, countries, languages, taxonomies
from snapbid.reference.geo import bare_address
from snapbid.reference.rates import Rates

USD: Final = "USD"
NO_RATE: Final = -1  # a floor whose currency has no exchange rate
UNREACHABLE: Final = 2**62  # a floor beyond any price, micro-USD
MAX_CACHED: Final = 256  # characters of a memo key
MAX_FITS: Final = 65_536  # verdicts kept on native creatives

T = TypeVar("T")

STRUCTS: Final = tuple(
    struct
    for struct in vars(request).values()
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct)
)
"""The decoded structs whose fields the matcher reads from memory."""


def _spellings(code: str) -> Iterator[str]:
    """Yield a currency's code in every mix of upper and lower case."""
    return map("".join, product(*zip(code.lower(), code.upper(), strict=True)))


_USD: Final = frozenset(_spellings(USD))
_NO_DEVICE: Final = Device()
_NO_USER: Final = User()


class CountryOfAddress(Protocol):
    """A geo database that maps an IP address to a country (alpha-3)."""

    def country(self, ip: str) -> str | None: ...


class Memo(dict[str, T]):
    """A cache of a function's results, cleared when full; results for long strings are not kept."""

    def __init__(self, function: Callable[[str], T], max_entries: int) -> None:
        super().__init__()
        self._function = function
        self._max_entries = max_entries

    def __missing__(self, text: str) -> T:
        result = self._function(text)
        if len(text) <= MAX_CACHED:
            if len(self) >= self._max_entries:
                self.clear()
            self[text] = result
        return result


def _country(code: str) -> str | None:
    return countries.alpha3(code.strip())


def _system(spelling: str) -> str | None:
    """Normalise an operating system; None for a placeholder."""
    return None if is_placeholder(spelling) else agents.fold_os(spelling)


# The matcher reads these memos itself: countries by code, operating systems by spelling,
# (system, browser) by user agent, and whether a US Privacy string opts out.
MEMOS: Final = (
    Memo(_country, 4_096),
    Memo(_system, 4_096),
    Memo(agents.parse, 16_384),
    Memo(gpp.usp_opts_out, 4_096),
)
# It also reads these tables itself, by language and by category.
TABLES: Final = (languages.CURRENT_CODES, taxonomies.listed(), taxonomies.first_flags())
_HOSTS: Final = Memo(host, 65_536)
_HOSTS_IN: Final = Memo(hosts_in, 4_096)


class Lookups:
    """The lookups of one catalog.

    `gvl_id`: the bidder's id in the Global Vendor List; `currency`: the bids' currency, which must
    have an exchange rate; `max_quantity`: the highest `qty.multiplier` of an impression; `members`:
    the members of audiences; `former_ids`: by SSP, its former canonical ids; `click_key` signs
    click ids. Lookups change nothing but caches, so a request may be read more than once.
    """

    def __init__(
        self,
        geo: CountryOfAddress,
        rates: Rates,
        *,
        gvl_id: int | None = None,
        currency: str = USD,
        suppression: Suppression | None = None,
        max_quantity: int = MAX_QUANTITY,
        members: MemberBook | None = None,
        former_ids: dict[str, tuple[str, ...]] | None = None,
        click_key: ClickKey | None = None,
    ) -> None:
        self.former_ids = former_ids or {}
        self.reader = Reader(
            STRUCTS,
            *MEMOS,
            *TABLES,
            in_usd=currency == USD,
            book=members,
            former_ids=self.former_ids,
        )
        self._members = members
        self.currency = currency
        self.max_quantity = max_quantity
        self._others: dict[str, Lookups] = {}
        self._spellings: dict[Text, str] = {
            text: code for code in rates.usd for text in _spellings(code)
        }
        self._geo = geo
        self._rates = rates
        self._gvl_id = gvl_id
        self._suppression = suppression or Suppression()
        self._click_key = click_key
        self.click_signer = click_key and ClickSigner(
            click_key.number, click_key.keys, PersonKey(self._suppression.key).key
        )
        self._fits_native: dict[tuple[int, Index, int, int], bool] = {}

    def bidding_in(self, cur: Texts) -> "Lookups | None":
        """Return the lookups for a request that accepts these currencies; None if all lack a rate.

        USD is used if the request accepts it or names no currency; otherwise the first currency
        with a rate.
        """
        if not cur or USD in cur or not _USD.isdisjoint(cur):
            return self
        listed = ",".join([str(text) for text in cur if text is not None]).split(",")
        codes = list(filter(None, map(str.strip, listed)))
        if not codes or not _USD.isdisjoint(codes):
            return self
        code = next(filter(None, map(self._spellings.get, codes)), None)
        if code is None:
            return None
        return self._others.get(code) or self._another(code)

    def _another(self, currency: str) -> "Lookups":
        """Build and cache a variant of these lookups for bids in another currency."""
        self._others[currency] = Lookups(
            self._geo,
            self._rates,
            gvl_id=self._gvl_id,
            currency=currency,
            suppression=self._suppression,
            max_quantity=self.max_quantity,
            members=self._members,
            former_ids=self.former_ids,
            click_key=self._click_key,
        )
        return self._others[currency]

    def price_micros(self, usd_micros: int) -> int:
        """Convert a price to the bids' currency; see `Rates.price_micros`."""
        return self._rates.price_micros(usd_micros, self.currency)

    def country_of_address(self, ip: Text, ipv6: Text) -> str | None:
        """Return the country (alpha-3) of the first address that the geo database knows."""
        for written in (ip, ipv6):
            if written and (country := self._country_at(str(written).strip())):
                return country
        return None

    def _country_at(self, written: str) -> str | None:
        if country := self._geo.country(written):
            return country
        address = bare_address(written)
        return None if address is None or address == written else self._geo.country(address)

    def region(self, country: str, code: str) -> str | None:
        """Return a region's normal form; see `vocabulary.region`."""
        return vocabulary.region(country, code)

    def host(self, url: str) -> str | None:
        """Return the host of a URL or a bare domain; see `campaigns.domains.host`."""
        return _HOSTS[url]

    def hosts_in(self, text: str) -> tuple[str, ...]:
        """Return the hosts in text such as a pasted list; see `campaigns.domains.hosts_in`."""
        return _HOSTS_IN[text]

    def hinted(self, agent: UserAgent) -> tuple[str | None, str | None]:
        """Return the operating system and browser named by a structured user agent.

        Names may be in quotes, as in the header of a client hint.
        """
        platform = agent.platform.brand if agent.platform is not None else None
        browsers = (agent.browsers or [])[:MAX_ENTRIES]
        brands = [str(each.brand).strip(' "') for each in browsers if each.brand is not None]
        brands = [brand for brand in brands if not is_placeholder(brand)]
        return (
            _system(str(platform)) if platform is not None else None,
            agents.browser_of(brands) if brands else None,
        )

    def may_use_user_data(self, request: BidRequest) -> bool:
        """Return whether the request's privacy signals permit the use of user data."""
        return privacy.may_use_user_data(signals(request), self._gvl_id)

    def objections(self, request: BidRequest) -> list[privacy.Objection]:
        """Return the reasons why the request's user data may not be used."""
        return list(privacy.objections(signals(request), self._gvl_id))

    def native_request(self, native: Native) -> NativeRequest | None:
        """Parse a native impression's request; None if it cannot be answered."""
        return NATIVE_REQUESTS.of(native)

    def fits_native(self, asked: NativeRequest, index: Index, rank: int, creative: int) -> bool:
        """Return whether a native creative's assets fit the request; results are cached."""
        key = asked.number, index, rank, creative
        fits = self._fits_native.get(key)
        if fits is None:
            native = decode_payload(index.payload(rank)).creatives[creative].native
            fits = native is not None and native_answer.fits(asked, native)
            if asked.number:  # the request is cached
                if len(self._fits_native) >= MAX_FITS:
                    self._fits_native.clear()
                self._fits_native[key] = fits
        return fits

    def person(self, request: BidRequest, family: str) -> str | None:
        """Return the user's key for frequency caps; None if the user is unknown or suppressed."""
        user = recognise(request.device or _NO_DEVICE, request.user or _NO_USER, family)
        return None if user is not None and self._suppression.has_user(user) else user

    def is_placeholder(self, id: str) -> bool:
        """Return whether an id is a placeholder, such as all zeros, sent in place of a real id."""
        return is_placeholder(id)

    def floor_micros(self, amount: float | None, currency: str | None, seconds: int = 1) -> int:
        """Convert a floor to micro-USD CPM, rounded up; NO_RATE if there is no exchange rate.

        A negative amount counts as absent. No price reaches a floor of NaN or infinity. For bids in
        another currency, the result is the lowest price that reaches the floor after conversion.
        `seconds`: the duration, for a floor per second.
        """
        if not amount or amount < 0:
            amount = 0
        elif not amount < math.inf:
            return UNREACHABLE
        rates, currency = self._rates, (currency or "").strip() or USD
        if self.currency == USD:
            micros = rates.floor_micros(amount, currency, seconds)
        else:
            micros = rates.least_price_micros(amount, currency, self.currency, seconds)
        if micros is None:
            return NO_RATE
        return min(micros, UNREACHABLE)


def dsa_of(request: BidRequest) -> Dsa | None:
    """Return the DSA signals from OpenRTB 2.6's field or 2.5's `ext`; None if neither is set.

    If both are set, the stricter `dsarequired` counts. `pubrender` comes from the stricter, or from
    the other if the stricter has none.
    """
    regs = request.regs
    places = [] if regs is None else [regs.dsa, regs.ext.dsa if regs.ext is not None else None]
    asked = sorted((dsa for dsa in places if dsa is not None), key=_requirement, reverse=True)
    if not asked:
        return None
    renders = [dsa.pubrender for dsa in asked if dsa.pubrender is not None]
    return Dsa(asked[0].dsarequired, renders[0] if renders else None)


def _requirement(dsa: Dsa) -> int:
    return dsa.dsarequired if dsa.dsarequired in (1, 2, 3) else 0


def signals(request: BidRequest) -> privacy.PrivacySignals:
    """Collect the privacy signals from OpenRTB 2.6's fields and from 2.5's `ext`."""
    regs, user = request.regs, request.user
    sources: list[Regs | RegsExt] = []
    if regs is not None:
        sources = [regs] if regs.ext is None else [regs, regs.ext]
    consents = {} if user is None else {user.consent, user.ext.consent if user.ext else None}
    return privacy.PrivacySignals(
        coppa=any(source.coppa == 1 for source in sources),
        gpc=any(source.gpc == 1 for source in sources),
        gdpr=any(source.gdpr == 1 for source in sources),
        consents=[consent for consent in consents if consent],
        us_privacy={source.us_privacy for source in sources if source.us_privacy},
        gpp={source.gpp for source in sources if source.gpp},
        gpp_sid=set().union(*(source.gpp_sid or () for source in sources)),
    )
