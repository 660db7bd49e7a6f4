"""ISO 4217 currency codes (document 3, Conventions).

Events may be old, so withdrawn codes remain valid if they were withdrawn since 2015, or have quotes
after 2001 in the exchange-rate history.
"""

from typing import Final

_CURRENT: Final = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP
GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR
KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN
MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX
USD USN UYI UYU UYW UZS VED VES VND VUV WST XAD XAF XAG XAU XBA XBB XBC XBD XCD XCG XDR XOF XPD
XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG
"""

_WITHDRAWN: Final = "ANG BGN BYR CUC CYP EEK HRK LTL LVL MRO MTL ROL SIT SKK SLL STD TRL VEF ZWL"

CODES: Final = frozenset(_CURRENT.split()) | frozenset(_WITHDRAWN.split())


def code(spelling: str) -> str | None:
    """Convert a currency code in any case to upper case; None if it is not a currency."""
    if spelling in CODES:
        return spelling
    # Only for ASCII: "ß".upper() is "SS".
    upper = spelling.upper() if spelling.isascii() else spelling
    return upper if upper in CODES else None
