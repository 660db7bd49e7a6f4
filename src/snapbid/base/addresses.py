"""Parse SNAPBID_REDIS_URL, which takes these forms (contract 10):

    redis://HOST:PORT             a single Redis server; rediss:// with TLS, unix:// by its socket
    redis+cluster://HOST:PORT,…   a cluster, found through any of these nodes
    redis+sentinel://HOST:PORT,…/NAME
                                  the primary that these sentinels monitor under that name

`rediss+cluster://` and `rediss+sentinel://` are the same with TLS. `USER:PASSWORD@` appears once,
before the first host, and options such as `?ssl_ca_certs=FILE` at the end; both apply to every
node. Sentinels have their own `sentinel_username` and `sentinel_password`.
"""

import re
import shlex
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

Node = tuple[str, int]  # host, port

_DEFAULT_PORTS: Final = {"cluster": 6379, "sentinel": 26_379}
_TLS_OPTIONS: Final = frozenset(
    {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs",
     "ssl_check_hostname"}
)  # fmt: skip
_CLI_OPTIONS: Final = {"--cacert": "ssl_ca_certs", "--cert": "ssl_certfile", "--key": "ssl_keyfile"}
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})
_OPTIONS: Final = {
    "redis": frozenset({"db", "username", "password"}),
    "cluster": frozenset(),
    "sentinel": _SENTINEL_OPTIONS | {"db"},
}
_VALUES: Final = {  # option -> its rule, and its values
    "db": ("the number of a database", re.compile(r"[0-9]{1,9}")),
    "ssl_cert_reqs": ("none, optional or required", re.compile(r"none|optional|required")),
    "ssl_check_hostname": ("true or false", re.compile(r"true|false|yes|no|1|0", re.IGNORECASE)),
}
_ENCODED: Final = (
    "must have special characters of the password encoded (# as %23, / as %2F, ? as %3F, @ as %40)"
)
_SCHEME: Final = re.compile(r"(rediss?)\+(cluster|sentinel)")
_NODE: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@?#]+)(?::([0-9]{1,5}))?")


class Arrangement(Enum):
    """A kind of Redis deployment, as named by a URL."""

    ONE = "redis"
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


def redis_cli(url: str) -> str:
    """Return a `redis-cli` command for a URL's server; it prompts if the URL has a password."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "unix":
        words = ["redis-cli", "-s", unquote(parts.path)]
    else:
        words = ["redis-cli", "-h", parts.hostname or "localhost", "-p", str(parts.port or 6379)]
    if parts.scheme == "rediss":
        words.append("--tls")
    for option, name in _CLI_OPTIONS.items():
        if name in options:
            words += [option, options[name]]
    if user := unquote(parts.username or "") or options.get("username"):
        words += ["--user", user]
    if parts.password or "password" in options:
        words.append("--askpass")
    return shlex.join(words)


def database(url: str) -> str:
    """Describe the database that a URL selects, such as `database 1`; "" for a cluster.

    For sentinels, the description begins with the primary's name. Raises ValueError if the URL is
    invalid.
    """
    address = parse(url)
    if address.arrangement is Arrangement.CLUSTER:
        return ""
    scheme, _, path, query = split(url)
    number = path.strip("/") if scheme in ("redis", "rediss") else ""
    number = dict(parse_qsl(query)).get("db", number)
    return f"{address.service} database {int(number or 0)}".strip()


class RedisAddress(NamedTuple):
    """A parsed URL of Redis. `nodes`: the nodes of a cluster, or the sentinels; else empty.

    `service`: the sentinels' name for the primary; `sentinel_options`: the user and password for
    the sentinels. `scheme`, `user` and `query` are parts of the nodes' URLs.
    """

    arrangement: Arrangement
    url: str
    nodes: tuple[Node, ...] = ()
    service: str = ""
    sentinel_options: tuple[tuple[str, str], ...] = ()
    scheme: str = ""
    user: str = ""
    query: str = ""

    def node_url(self, node: Node) -> str:
        """Return the URL of a cluster node, or of a primary that sentinels have named."""
        host, port = node
        host = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{self.user}{host}:{port}{self.query}"


def parse(url: str) -> RedisAddress:
    """Parse a URL. Raises ValueError naming the broken rule, but never a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ValueError("must be a URL such as redis://HOST:PORT")
    if "#" in rest:  # an unencoded password may have it
        raise ValueError(f"must have no #, and {_ENCODED}")
    kind = _SCHEME.fullmatch(scheme)
    if kind is not None:
        return _parse_several(url, kind[1], kind[2])
    if scheme not in ("redis", "rediss", "unix"):
        raise ValueError(
            "must start with redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://"
            f" (found the scheme {scheme!r})"
        )
    _check_one(url)
    return RedisAddress(Arrangement.ONE, url)


def _check_one(url: str) -> None:
    scheme, authority, path, query = split(url)
    host = authority.rpartition("@")[2]
    if scheme == "unix":
        if host or not path.strip("/"):
            raise ValueError("must have the absolute path of a socket after unix://")
    else:
        if "@" in path:  # so `host` is part of a password
            raise ValueError(_ENCODED)
        _check_host(url, host)
        if not re.fullmatch(r"(/[0-9]*)?", path):
            raise ValueError("must have only a database number after the port")
    _options(query, "redis", scheme)


def split(url: str) -> tuple[str, str, str, str]:
    """Split a URL without a fragment into scheme, authority, path and query.

    Unlike urlsplit, which from Python 3.14 on refuses an IPv6 address after another host, it takes
    any list of hosts.
    """
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    return scheme, authority, slash + path, query


def _check_host(url: str, hosts: str) -> None:
    if "," in hosts:
        raise ValueError(
            f"must name one Redis after redis:// (found {hosts.count(',') + 1} nodes): write"
            " redis+cluster:// for the nodes of a cluster, redis+sentinel:// for sentinels"
        )
    try:
        good = urlsplit(url).port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"must have a port from 1 to 65535 (found {hosts!r})")


def _parse_several(url: str, scheme: str, kind: str) -> RedisAddress:
    if url.count("://") > 1:
        raise ValueError(f"must name nodes as HOST:PORT after redis+{kind}:// (found a second ://)")
    _, authority, path, query = split(url)
    name = path.removeprefix("/")
    user, at, hosts = authority.rpartition("@")
    if "," in user:
        raise ValueError("may have USER:PASSWORD@ only before the first host")
    nodes = tuple(_node(text, _DEFAULT_PORTS[kind]) for text in hosts.split(","))
    if len(set(nodes)) < len(nodes):
        raise ValueError("must name each node only once")
    options = dict(_options(query, kind, scheme))
    own = tuple((key, options.pop(key)) for key in sorted(_SENTINEL_OPTIONS & set(options)))
    if kind == "cluster" and name:
        raise ValueError(
            f"must end after the nodes, since a cluster has no databases (found {path})"
        )
    if kind == "sentinel" and not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        found = path or "no name"
        raise ValueError(f"must end in /NAME, the sentinels' name for the primary (found {found})")
    return RedisAddress(
        Arrangement(kind),
        url,
        nodes,
        name,
        own,
        scheme,
        user + at,
        f"?{urlencode(options)}" if options else "",
    )


def _node(text: str, default_port: int) -> Node:
    found = _NODE.fullmatch(text)
    if found is None or not 0 < int(found[2] or default_port) < 65_536:
        raise ValueError(f"must name each node as HOST:PORT (found {text!r})")
    return found[1].strip("[]"), int(found[2] or default_port)


def _options(query: str, kind: str, scheme: str) -> list[tuple[str, str]]:
    allowed = _OPTIONS[kind] | (_TLS_OPTIONS if scheme == "rediss" else frozenset())
    options = parse_qsl(query, keep_blank_values=True)
    for name, value in options:
        if "@" in name:
            raise ValueError(_ENCODED)
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            after = scheme if kind == "redis" else f"{scheme}+{kind}"
            raise ValueError(f"has an unknown option {name!r} (allowed after {after}: {known})")
        if name in _VALUES:
            rule, values = _VALUES[name]
            if not values.fullmatch(value):
                raise ValueError(f"must have {rule} in the option {name} (found {value!r})")
    return options
