"""The forms of SNAPBID_REDIS_URL (contract 10)."""

import pytest

from snapbid.base.addresses import Arrangement, database, parse, redis_cli
from snapbid.base.reasons import address as address_of
from snapbid.base.settings import SettingsError, load


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://:p@h:1/2",
        "rediss://h:6380",
        "unix:///s",
        "redis://h/",
        "unix://:p@/s?db=2",
        "rediss://h?ssl_cert_reqs=none&ssl_check_hostname=False",
    ],
)
def test_one_redis_keeps_its_url(url: str) -> None:
    address = parse(url)
    assert address.arrangement is Arrangement.ONE
    assert address.url == url


@pytest.mark.parametrize(
    ("url", "nodes", "first"),
    [
        ("redis+cluster://a:1,b:2", (("a", 1), ("b", 2)), "redis://a:1"),
        ("redis+cluster://a", (("a", 6379),), "redis://a:6379"),
        ("redis+cluster://[::1]:7", (("::1", 7),), "redis://[::1]:7"),
        ("redis+cluster://u:p%40@a:1,b:2", (("a", 1), ("b", 2)), "redis://u:p%40@a:1"),
        (
            "rediss+cluster://a:1?ssl_ca_certs=/ca.pem",
            (("a", 1),),
            "rediss://a:1?ssl_ca_certs=%2Fca.pem",
        ),
    ],
)
def test_a_cluster(url: str, nodes: object, first: str) -> None:
    address = parse(url)
    assert address.arrangement is Arrangement.CLUSTER
    assert address.nodes == nodes
    assert address.node_url(address.nodes[0]) == first


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://h", "database 0"),
        ("redis://h:1/", "database 0"),
        ("redis://:p@h:1/3", "database 3"),
        ("rediss://h/3?db=04", "database 4"),
        ("unix:///s/1", "database 0"),
        ("unix:///s?db=2", "database 2"),
        ("redis+cluster://a,b", ""),
        ("redis+cluster://a:1,[::1]:7", ""),
        ("redis+sentinel://a,b/main", "main database 0"),
        ("redis+sentinel://a,b/1?db=3", "1 database 3"),
    ],
)
def test_databases(url: str, name: str) -> None:
    assert database(url) == name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://h", "h"),
        ("redis://:p@h:1/3", "h:1"),
        ("unix://:p@/run/a%20b?db=2", "/run/a b"),
        ("rediss+cluster://u:p@a:1,[::1]:7?ssl_ca_certs=/ca.pem", "a:1,[::1]:7"),
        ("redis+sentinel://[::1],b/main", "[::1],b"),
        ("postgresql://u:p@h,[::1]:2/d", "h,[::1]:2"),
        ("postgresql:///d?host=/run/pg&port=1", "/run/pg"),
        ("postgresql:///d", "localhost"),
    ],
)
def test_names_in_messages(url: str, name: str) -> None:
    assert address_of(url) == name


def test_sentinels() -> None:
    address = parse("redis+sentinel://:p@a:1,b/main?sentinel_password=q&db=3")
    assert address.arrangement is Arrangement.SENTINEL
    assert address.nodes == (("a", 1), ("b", 26379))
    assert address.service == "main"
    assert address.sentinel_options == (("sentinel_password", "q"),)
    assert address.node_url(("c", 9)) == "redis://:p@c:9?db=3"


@pytest.mark.parametrize(
    ("url", "mistake"),
    [
        ("localhost:6379", "must be a URL such as redis://HOST:PORT"),
        ("http://:hunter2@h", "(found the scheme 'http')"),
        ("redis://:hunter2@a:1,b:2", "must name one Redis after redis:// (found 2 nodes)"),
        ("redis://a:port", "must have a port from 1 to 65535 (found 'a:port')"),
        ("redis://a:0", "must have a port from 1 to 65535"),
        ("redis://:hunter2@a:1/live", "only a database number after the port"),
        ("redis+cluster://", "must name each node as HOST:PORT (found '')"),
        ("redis+cluster://a:1,", "must name each node as HOST:PORT (found '')"),
        ("redis+cluster://a:70000", "must name each node as HOST:PORT (found 'a:70000')"),
        ("redis+cluster://a:1,redis://b:2", "after redis+cluster:// (found a second ://)"),
        ("redis+cluster://a:1,a:1", "must name each node only once"),
        ("redis+cluster://a:1/0", "a cluster has no databases (found /0)"),
        ("redis+cluster://u:hunter2@a:1,u:hunter2@b:2", "USER:PASSWORD@ only"),
        ("redis+cluster://a:1?db=1", "unknown option 'db' (allowed after redis+cluster: none)"),
        ("redis+cluster://a:1?ssl_ca_certs=x", "unknown option 'ssl_ca_certs'"),
        ("redis+sentinel://a:1", "must end in /NAME"),
        ("redis+sentinel://a:1/", "must end in /NAME"),
        ("redis+sentinel://a:1/x/0", "must end in /NAME"),
        ("redis+unix:///s", "(found the scheme 'redis+unix')"),
        (
            "redis://h:6379/0?socket_timeot=1",
            "unknown option 'socket_timeot' (allowed after redis: db, password, username)",
        ),
        ("redis://h?ssl_ca_certs=/ca.pem", "unknown option 'ssl_ca_certs'"),
        ("redis://h?db=live", "must have the number of a database in the option db"),
        ("unix:///s?ssl_ca_certs=/ca.pem", "unknown option 'ssl_ca_certs' (allowed after unix:"),
        ("rediss://h?ssl_cert_reqs=nope", "must have none, optional or required in the option ssl"),
        ("rediss+cluster://h?ssl_cert_reqs=nope", "in the option ssl_cert_reqs (found 'nope')"),
        ("rediss://h?ssl_check_hostname=maybe", "must have true or false in the option ssl_check"),
        ("unix://", "must have the absolute path of a socket after unix://"),
        ("unix:///", "must have the absolute path of a socket after unix://"),
        ("unix://:hunter2@", "must have the absolute path of a socket after unix://"),
        ("unix://run/redis.sock", "must have the absolute path of a socket after unix://"),
        ("redis://h:1/0#hunter2", "must have no #"),
        ("unix:///s#fragment", "must have no #"),
        ("redis+cluster://a:1?#fragment", "must have no #"),
        ("redis://:hunter2#x@h:1", "(# as %23"),
        ("redis://:hunter2/x@h:1", "/ as %2F"),
        ("redis://u:1?hunter2@h:1", "? as %3F"),
    ],
)
def test_malformed_urls_are_refused(url: str, mistake: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({"SNAPBID_REDIS_URL": url})
    text = str(refused.value)
    assert text.startswith("SNAPBID_REDIS_URL ")
    assert mistake in text
    assert "hunter2" not in text


def test_no_password_is_shown() -> None:
    url = "redis+sentinel://u:hunter2@a:1/x?sentinel_password=hunter3"
    assert "hunter" not in repr(load({"SNAPBID_REDIS_URL": url}))


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("redis://h", "redis-cli -h h -p 6379"),
        ("redis://[::1]:7/3", "redis-cli -h ::1 -p 7"),
        ("redis://:secret@h:1", "redis-cli -h h -p 1 --askpass"),
        ("redis://h:1?username=u&password=secret", "redis-cli -h h -p 1 --user u --askpass"),
        (
            "rediss://me:secret@h:1?ssl_ca_certs=/a%20b.pem",
            "redis-cli -h h -p 1 --tls --cacert '/a b.pem' --user me --askpass",
        ),
        ("unix:///run/redis.sock?db=1", "redis-cli -s /run/redis.sock"),
    ],
)
def test_printed_command_reaches_the_same_redis_without_the_password(
    url: str, command: str
) -> None:
    assert redis_cli(url) == command
    assert parse(url).url == url
