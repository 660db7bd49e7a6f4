from snapbid.reference import countries

# Spelt out independently of the table: codes that are easily confused.
PAIRS = {
    "US": "USA", "GB": "GBR", "DE": "DEU", "CH": "CHE", "AT": "AUT", "AU": "AUS", "SE": "SWE",
    "SV": "SLV", "SI": "SVN", "SK": "SVK", "KR": "KOR", "KP": "PRK", "CG": "COG", "CD": "COD",
    "NE": "NER", "NG": "NGA", "IE": "IRL", "IR": "IRN", "IQ": "IRQ", "IS": "ISL", "IL": "ISR",
    "UA": "UKR", "AE": "ARE", "ZA": "ZAF", "SA": "SAU", "CN": "CHN", "CL": "CHL", "RS": "SRB",
    "ME": "MNE", "PS": "PSE", "TW": "TWN", "HK": "HKG", "MO": "MAC", "SS": "SSD", "CW": "CUW",
}  # fmt: skip

NO_COUNTRIES = [
    "UK", "EU", "XK", "XKX", "TST", "ZZ", "AA", "AN", "ANT", "SU", "YU", "U", "", "USAA",
    "United States", "840", "U\u015a", "\u017fe", " US", "US ", "u\u0131",
]  # fmt: skip


def test_all_249_countries_have_both_codes() -> None:
    assert len(countries.ALPHA3) == 249
    twos = {countries.alpha2(three) for three in countries.ALPHA3}
    assert len(twos) == 249
    assert all(two is not None and countries.alpha3(two) in countries.ALPHA3 for two in twos)


def test_the_codes_belong_together() -> None:
    for two, three in PAIRS.items():
        assert countries.alpha3(two) == three
        assert countries.alpha2(three) == two
        assert countries.alpha3(three) == three
        assert countries.alpha2(two) == two


def test_any_case() -> None:
    for spelling in ("us", "Us", "uS", "usa", "Usa", "uSA"):
        assert countries.alpha3(spelling) == "USA"
        assert countries.alpha2(spelling) == "US"


def test_unknown_countries_have_no_code() -> None:
    for code in NO_COUNTRIES:
        assert countries.alpha3(code) is None, code
        assert countries.alpha2(code) is None, code
