from collections.abc import Mapping
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_network
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.reference import countries, geo
from snapbid.reference.geo import GeoDatabase, GeoDatabaseError

MARKER = b"\xab\xcd\xefMaxMind.com"


def encode(value: object) -> bytes:
    """MaxMind DB data section: a control byte with type and size, then the content."""
    if isinstance(value, str):
        return bytes([2 << 5 | len(value)]) + value.encode()
    if isinstance(value, int):
        return bytes([6 << 5 | 4]) + value.to_bytes(4)
    if isinstance(value, bytes):
        return value
    assert isinstance(value, dict)
    items = (encode(key) + encode(content) for key, content in value.items())
    return bytes([7 << 5 | len(value)]) + b"".join(items)


def uint16(value: int) -> bytes:
    return bytes([5 << 5 | 2]) + value.to_bytes(2)


# Types above 7 stand in a second byte: unsigned 64-bit integer (9), array (11).
UINT64 = bytes([8, 9 - 7]) + (1_700_000_000).to_bytes(8)
EMPTY_ARRAY = bytes([0, 11 - 7])


def write_database(path: Path, networks: Mapping[str, object], ip_version: int = 6) -> Path:
    """A small .mmdb file with 24-bit records, after the format's specification."""
    tree: list[list[int | None]] = [[None, None]]
    data, places = b"", {}
    for number, (network, record) in enumerate(networks.items()):
        parsed = ip_network(network)
        bits = f"{int(parsed.network_address):0{parsed.max_prefixlen}b}"[: parsed.prefixlen]
        if ip_version == 6 and parsed.version == 4:
            bits = "0" * 96 + bits
        node = 0
        for bit in bits[:-1]:
            following = tree[node][int(bit)]
            if following is None:
                tree.append([None, None])
                following = tree[node][int(bit)] = len(tree) - 1
            node = following
        tree[node][int(bits[-1])] = -1 - number
        places[number] = len(data)
        data += encode(record)
    count = len(tree)

    def pointer(record: int | None) -> bytes:
        if record is None:
            return count.to_bytes(3)
        value = record if record >= 0 else places[-1 - record] + count + 16
        return value.to_bytes(3)

    nodes = b"".join(pointer(record) for node in tree for record in node)
    metadata = {
        "node_count": count,
        "record_size": uint16(24),
        "ip_version": uint16(ip_version),
        "database_type": "Test",
        "languages": EMPTY_ARRAY,
        "binary_format_major_version": uint16(2),
        "binary_format_minor_version": uint16(0),
        "build_epoch": UINT64,
        "description": {},
    }
    path.write_bytes(nodes + bytes(16) + data + MARKER + encode(metadata))
    return path


@pytest.fixture(scope="module")
def shipped() -> GeoDatabase:
    return GeoDatabase(geo.DEFAULT_PATH)


@pytest.mark.parametrize(
    ("ip", "country"),
    [
        ("8.8.8.8", "USA"),
        ("193.99.144.80", "DEU"),
        ("2001:4860:4860::8888", "USA"),
        ("::ffff:8.8.8.8", "USA"),
        ("::FFFF:808:808", "USA"),
        ("0:0:0:0:0:ffff:193.99.144.80", "DEU"),
        ("8.8.8.0", "USA"),  # truncated, as SSPs do where user data may not be used
        ("2001:4860:4860::", "USA"),
    ],
)
def test_bundled_database(shipped: GeoDatabase, ip: str, country: str | None) -> None:
    assert shipped.country(ip) == country


NOT_PUBLIC = (
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.2.1",
    "192.168.1.10",
    "198.51.100.7",
    "203.0.113.0",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:192.168.1.10",
    "2001:2::1",
    "2001:10::1",
    "2001:db8::1",
    "2001:DB8:FFFF::",
    "fd00::1",
    "fe80::1",
)
NEIGHBOURS = ("172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "2001:db9::1")


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> GeoDatabase:
    """A database in which every address is in Sweden."""
    sweden = {"country_code": "SE"}
    path = tmp_path_factory.mktemp("geo") / "everywhere.mmdb"
    return GeoDatabase(write_database(path, {"::/1": sweden, "8000::/1": sweden}))


@pytest.mark.parametrize("ip", NOT_PUBLIC)
def test_only_public_addresses_have_a_place(
    shipped: GeoDatabase, everywhere: GeoDatabase, ip: str
) -> None:
    for database in (shipped, everywhere):
        assert (database.country(ip), database.place(ip)) == (None, None)


def test_neighbours_of_addresses_that_are_not_public_have_a_place(everywhere: GeoDatabase) -> None:
    assert [everywhere.country(each) for each in NEIGHBOURS] == ["SWE"] * len(NEIGHBOURS)


@given(st.ip_addresses())
def test_which_addresses_are_public(shipped: GeoDatabase, ip: IPv4Address | IPv6Address) -> None:
    plain = (ip.ipv4_mapped if isinstance(ip, IPv6Address) else None) or ip
    assert plain.is_global or shipped.country(str(ip)) is None


@pytest.mark.parametrize(
    "ip",
    [
        "",
        "1",
        "8.8.8",
        "8.8.8.8.8",
        "8.8.8.256",
        "8.8.8.8:80",
        "8.8.8.8/32",
        "0x8.8.8.8",
        "08.8.8.8",
        "134744072",
        "dns.google",
        " ",
        "::g",
        ":",
        "fe80::1%eth0",
        "[::1]",
        "8.8.8.8\x00",
        "::1\x00",
        f"{chr(0xFF18)}.8.8.8",
        "\ud800",
        "\ud800:",
    ],
)
def test_malformed_addresses_have_no_country(shipped: GeoDatabase, ip: str) -> None:
    assert shipped.country(ip) is None


@given(st.text() | st.ip_addresses().map(str))
def test_any_text_is_accepted(shipped: GeoDatabase, text: str) -> None:
    country = shipped.country(text)
    assert country is None or country in countries.ALPHA3


@pytest.mark.parametrize(
    "record",
    [
        {"country_code": "SE"},
        {"country": {"iso_code": "SE", "geoname_id": 1}, "continent": {"code": "EU"}},
        {"country": "SE"},
        {"country": "Sweden", "country_code": "SE"},
        {"country_code": "swe"},
    ],
)
def test_shapes_of_records(tmp_path: Path, record: object) -> None:
    networks = {"81.2.69.0/24": record, "2a02:cf00::/24": record}
    database = GeoDatabase(write_database(tmp_path / "small.mmdb", networks))
    assert database.country("81.2.69.142") == "SWE"
    assert database.country("::ffff:81.2.69.142") == "SWE"
    assert database.country("2a02:cf00::1") == "SWE"
    assert database.country("81.2.70.142") is None
    assert database.country("2a02:d000::1") is None


def test_a_database_of_ipv4_alone(tmp_path: Path) -> None:
    path = write_database(tmp_path / "v4.mmdb", {"81.2.69.0/24": {"country_code": "SE"}}, 4)
    database = GeoDatabase(path)
    assert database.country("81.2.69.142") == "SWE"
    assert database.country("::ffff:81.2.69.142") == "SWE"
    assert database.country("2a02:cf00::1") is None


@pytest.mark.parametrize("record", [{"country_code": "ZZ"}, {"asn": 3}, {"country": {}}, {}])
def test_a_database_without_countries_is_refused(tmp_path: Path, record: object) -> None:
    path = write_database(tmp_path / "asn.mmdb", {"81.2.69.0/24": record})
    with pytest.raises(GeoDatabaseError, match=f"{path} contains no countries"):
        GeoDatabase(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.mmdb"
    with pytest.raises(GeoDatabaseError, match=f"{path} cannot be read: No such file"):
        GeoDatabase(path)


def damages() -> dict[str, bytes]:
    whole = geo.DEFAULT_PATH.read_bytes()
    data = whole.index(b"country_code") - 2
    end = whole.rindex(MARKER)
    return {
        "empty": b"",
        "text": b"this is no database\n" * 1000,
        "first half": whole[: len(whole) // 2],
        "second half": whole[len(whole) // 2 :],
        "without its end": whole[:-100],
        "data zeroed": whole[:data] + bytes(end - data) + whole[end:],
        "data overwritten": whole[:data] + b"\xff" * (end - data) + whole[end:],
        "tree overwritten": whole[:100_000] + b"\xff" * 1_000_000 + whole[1_100_000:],
        "a page overwritten": whole[:4096] + b"\xfe" * 4096 + whole[8192:],
    }


DAMAGES = damages()


@pytest.mark.parametrize(("name", "content"), DAMAGES.items(), ids=DAMAGES)
def test_corrupt_files_are_detected_on_opening(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / "corrupt.mmdb"
    path.write_bytes(content)
    with pytest.raises(GeoDatabaseError, match=str(path)):
        GeoDatabase(path)


def test_undetected_damage_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "patched.mmdb"
    networks = {
        f"{a}.{b}.77.0/24": {"country_code": "SE"} for a, b in product((11, 12), range(3))
    } | {"20.0.77.0/24": {"country_code": "NO"}}
    content = write_database(path, networks).read_bytes()
    at = content.index(encode({"country_code": "NO"}))
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    database = GeoDatabase(path)
    assert database.country("11.0.77.1") == "SWE"
    assert database.country("20.0.77.1") is None


def test_a_closed_database_has_no_countries(tmp_path: Path) -> None:
    path = write_database(tmp_path / "small.mmdb", {"81.2.69.0/24": {"country_code": "SE"}})
    database = GeoDatabase(path)
    database.close()
    assert database.country("81.2.69.142") is None


def test_the_attribution_names_the_file_that_ships() -> None:
    text = geo.DEFAULT_PATH.with_name("ATTRIBUTION.md").read_text()
    assert sha256(geo.DEFAULT_PATH.read_bytes()).hexdigest() in text
    assert "CC BY 4.0" in text
    assert geo.DEFAULT_PATH.name in text
