import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapbid.campaigns import vocabulary
from snapbid.campaigns.domains import host as host_of

NAMES = [dimension.name for dimension in vocabulary.DIMENSIONS]

VALID = [
    ("city", "Mu\u0308nchen", "m\u00fcnchen"),
    ("city", "I\u0307zmir", "i\u0307zmir"),  # its capital is composed, its small letter never is
    ("carrier", "Telefo\u0301nica", "telef\u00f3nica"),
    ("postal", "e\u0301", "\u00e9"),
    ("region", "DE-Thu\u0308ringen", "deu-th\u00fcringen"),
    ("bundle", "e\u0301", "e\u0301"),
    ("ssp", "acme-eu", "acme-eu"),
    ("country", "us", "USA"),
    ("country", "Deu", "DEU"),
    ("region", "USA-CA", "usa-ca"),
    ("region", "us-ca", "usa-ca"),
    ("region", "USA-US-CA", "usa-ca"),
    ("region", "GBR-ENG", "gbr-eng"),
    ("city", "STRASSE", "strasse"),
    ("city", "Straße", "strasse"),
    ("city", "São Paulo", "são paulo"),
    ("postal", "SW1A 1AA", "sw1a 1aa"),
    ("device_type", 4, 4),
    ("device_type", 0, 0),
    ("device_type", "phone", 4),
    ("device_type", "Set-Top Box", 7),
    ("connection", 2, 2),
    ("connection", "unknown", 0),
    ("connection", "Wi-Fi", 2),
    ("connection", "4G", 6),
    ("os", "iOS", "ios"),
    ("os", "Mac OS X", "macos"),
    ("os", "OTHER", "other"),
    ("browser", "Chrome", "chrome"),
    ("carrier", "T-Mobile", "t-mobile"),
    ("language", "en", "en"),
    ("language", "EN-us", "en"),
    ("language", "pt_BR", "pt"),
    ("inventory", "DOOH", "dooh"),
    ("domain", "Example.COM", "example.com"),
    ("domain", " example.com. ", "example.com"),
    ("domain", "Bücher.de", "xn--bcher-kva.de"),
    ("domain", "BU\u0308CHER.de", "xn--bcher-kva.de"),
    ("domain", "xn--bcher-kva.de", "xn--bcher-kva.de"),
    ("domain", "straße.de", "xn--strae-oqa.de"),
    ("domain", "日本。example", "xn--wgv71a.example"),
    ("domain", "https://example.com", "example.com"),
    ("domain", "example.com/page", "example.com"),
    ("domain", "example.com:80", "example.com"),
    ("domain", "*.example.com", "example.com"),
    ("domain", ".example.com", "example.com"),
    ("domain", "www.example.com", "example.com"),
    ("domain", "www.com", "www.com"),
    ("domain", "my_site.example-1.com", "my_site.example-1.com"),
    ("bundle", "com.Example.App", "com.Example.App"),
    ("publisher", "0042", "0042"),
    ("category", "IAB3-1", "IAB3-1"),
    ("segment", " s ", "s"),
    ("audience", "depositors-30d", "depositors-30d"),
    ("deal", "Deal-1", "Deal-1"),
    ("position", 7, 7),
    ("position", "Above the fold", 1),
    ("placement", 4, 4),
    ("placement", "standalone", 4),
    ("placement", "native_in_feed", "n1"),
    ("placement", "n4", "n4"),
    ("placement", "n2147483647", "n2147483647"),
    ("rewarded", 1, 1),
    ("interstitial", 0, 0),
    ("hour", 0, 0),
    ("hour", 167, 167),
]

INVALID = [
    ("audience", "a b"),
    ("audience", ""),
    ("audience", "x" * 129),
    ("audience", 7),
    ("country", "UK"),
    ("country", "XX"),
    ("country", 840),
    ("region", "CA"),
    ("region", "USA"),
    ("region", "USA-"),
    ("region", "XX-CA"),
    ("device_type", -1),
    ("device_type", "4"),
    ("device_type", 4.0),
    ("device_type", True),
    ("device_type", "phones"),
    ("device_type", "wifi"),
    ("device_type", ""),
    ("connection", "w-lan"),
    ("position", "instream"),
    ("position", 2**31),
    ("placement", -1),
    ("placement", "4"),
    ("placement", "n"),
    ("placement", "n01"),
    ("placement", "N1"),
    ("placement", "n2147483648"),
    ("rewarded", 2),
    ("rewarded", True),
    ("interstitial", -1),
    ("os", "Roku OS"),
    ("os", "Andriod"),
    ("browser", "netscape"),
    ("language", "e"),
    ("language", "12"),
    ("language", "en us"),
    ("inventory", "web"),
    ("domain", "example..com"),
    ("domain", "bücher .de"),
    ("domain", "."),
    ("hour", 168),
    ("hour", -1),
    ("hour", False),
]

HOSTS = [
    ("example.com", "example.com"),
    ("example.com/page?u=http://other.com/", "example.com"),
    ("https://www.Example.com/a", "example.com"),
    ("HTTP://user:pass@example.com:8080/", "example.com"),
    ("//example.com", "example.com"),
    ("example.com:443", "example.com"),
    ("example.com.", "example.com"),
    ("  http://example.com  ", "example.com"),
    ("http://example.com?q", "example.com"),
    ("http://example.com#f", "example.com"),
    ("http://example.com@evil.com/", "evil.com"),
    ("android-app://com.example.app", "com.example.app"),
    ("http://10.0.0.1/", "10.0.0.1"),
    ("", None),
    ("/only/a/path", None),
    ("https://", None),
    ("http:/example.com", None),
    ("about:blank", None),
    ("http://[::1]/", None),
    ("some words", None),
    ("http://a..b/", None),
]


def test_the_dimensions_are_those_of_the_contract() -> None:
    assert " ".join(NAMES) == (
        "ssp country region city postal device_type connection os browser carrier language"
        " inventory domain bundle publisher category segment audience deal position"
        " placement rewarded interstitial hour"
    )
    integers = {d.name for d in vocabulary.DIMENSIONS if d.kind == "int"}
    assert integers == {
        *("device_type", "connection", "position", "rewarded", "interstitial", "hour")
    }
    assert all((d.case is None) == (d.kind == "int") for d in vocabulary.DIMENSIONS)
    per_impression = {d.name for d in vocabulary.DIMENSIONS if d.scope == "impression"}
    assert per_impression == {"deal", "position", "placement", "rewarded", "interstitial"}


@pytest.mark.parametrize(("dimension", "value", "normal"), VALID)
def test_normal_form(dimension: str, value: object, normal: str | int) -> None:
    assert vocabulary.NORMALISE[dimension](value) == normal
    assert vocabulary.NORMALISE[dimension](normal) == normal


@pytest.mark.parametrize(("dimension", "value"), INVALID)
def test_invalid_values(dimension: str, value: object) -> None:
    assert vocabulary.NORMALISE[dimension](value) is None


@pytest.mark.parametrize("dimension", [d.name for d in vocabulary.DIMENSIONS if d.kind == "text"])
def test_text_refused_by_every_dimension(dimension: str) -> None:
    values: list[object] = ["", "a\0b", "a\ud800b", "é\udfffb", None, 3, 1.5, True, [], {}, b"USA"]
    for value in values:
        assert vocabulary.NORMALISE[dimension](value) is None, value


def test_text_is_limited_to_512_bytes() -> None:
    assert vocabulary.NORMALISE["bundle"]("x" * 512) == "x" * 512
    assert vocabulary.NORMALISE["bundle"]("x" * 513) is None
    assert vocabulary.NORMALISE["bundle"]("é" * 257) is None
    assert vocabulary.NORMALISE["city"]("ß" * 256) == "ss" * 256
    assert vocabulary.NORMALISE["city"]("ΐ" * 256) is None  # its normal form has 1536 bytes
    assert vocabulary.NORMALISE["region"]("us-" + "x" * 508) == "usa-" + "x" * 508
    assert vocabulary.NORMALISE["region"]("us-" + "x" * 509) is None


@pytest.mark.parametrize(("country", "code", "normal"), [
    ("USA", "CA", "usa-ca"),
    ("USA", "US-CA", "usa-ca"),
    ("USA", "usa-ca", "usa-ca"),
    ("GBR", "GB-ENG", "gbr-eng"),
    ("CAN", "US-CA", "can-us-ca"),
    ("USA", "", None),
    ("USA", "US-", None),
])  # fmt: skip
def test_region_of_a_request(country: str, code: str, normal: str | None) -> None:
    assert vocabulary.region(country, code) == normal


@pytest.mark.parametrize(("url", "host"), HOSTS)
def test_host(url: str, host: str | None) -> None:
    assert host_of(url) == host


@example("category", "¼")
@given(st.sampled_from(NAMES), st.one_of(st.text(), st.integers(), st.floats(), st.booleans()))
def test_normalisation_is_idempotent(dimension: str, value: object) -> None:
    normal = vocabulary.NORMALISE[dimension](value)
    if normal is not None:
        assert vocabulary.NORMALISE[dimension](normal) == normal


@given(st.text())
def test_a_host_is_a_domain(url: str) -> None:
    host = host_of(url)
    if host is not None:
        assert host_of(host) == host
