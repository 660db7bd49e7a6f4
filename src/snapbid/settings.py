"""Settings: `SNAPBID_*` environment variables, checked once, into one frozen struct (contract 1).

Two steps: raw strings, then a checked value that is passed down. A wrong setting never hides
another: `load` raises one `SettingsError` that names them all. An empty variable counts as unset,
except secrets, which are never empty on purpose.
"""

import difflib
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from snapbid import addresses
from snapbid.access import parse_networks

SECRET_MIN_BYTES = 32
TOKEN_MIN_CHARACTERS = 16
KNOWN_ELSEWHERE = frozenset((  # read by setup.py, the tests and `snapbid load`
    "SNAPBID_DEBUG", "SNAPBID_CORPUS", "SNAPBID_VAST_SAMPLES", "SNAPBID_VAST_SCHEMAS",
    "SNAPBID_API_KEY", "SNAPBID_REPORT_TOKEN",
))  # fmt: skip


class SettingsError(ValueError):
    """Wrong or missing settings: one line per mistake. Commands end with exit status 2."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Secret:
    """Text that does not show itself in a repr, a log line or a traceback."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def key(self) -> bytes:
        """The signing key: the secret's UTF-8 bytes."""
        return self._text.encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(…)"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked. Times in the unit that the name says; paths are absolute."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    base_url: str  # what notification URLs start with, without a trailing slash
    redis_url: str | None = None
    redis_replicas: int | None = None  # that have a write before it counts; None: 1 in a cluster
    database_url: str | None = None
    home: Path
    jwt_secret: Secret | None = None
    jwt_issuer: str = "snapbid"
    geo_db: Path | None = None  # None: the country database that ships
    bid_ttl_s: int = 7200
    hold_s: int = 60  # for which a bid holds its cost, and a capped user's impression
    bid_max_bytes: int = 262_144  # of a decompressed body
    body_timeout_s: int = 5  # for a request's body to come
    tmax_ms: int = 100  # where the request names none
    bid_cpu_ms: int = 10  # processor time that a bid request may take
    ledger_shards: int = 1  # in Redis; changing it loses sight of the bids remembered before
    spool_max_bytes: int = 67_108_864  # notices on disk while Redis is away, per worker
    rest_losses: int = 3  # of a creative at an SSP, for what it is, before it rests there; 0: never
    rest_s: int = 86_400
    gvl_id: int | None = None  # our id in the IAB Global Vendor List
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is believed
    ops_host: str = "127.0.0.1"
    ops_port: int = 8001
    ops_token: Secret | None = None  # of the private port
    allow_volatile: bool = False  # start on stores that may lose what they acknowledge
    record: Path | None = None  # where sampled bid requests are kept for replay
    record_sample: float = 0.01  # of all bid requests
    record_max_bytes: int = 268_435_456  # of that file
    auction_log: Path | None = None  # the directory of the auction log
    auction_log_s: int = 300  # until a row is in a file of it

    @property
    def runtime_dir(self) -> Path:
        """The directory shared by the processes of one server; each port has its own."""
        return self.home / f"serve-{self.port}"

    @property
    def catalog_path(self) -> Path:
        return self.runtime_dir / "catalog"

    @property
    def metrics_path(self) -> Path:
        return self.runtime_dir / "metrics"

    @property
    def spool_path(self) -> Path:
        return self.runtime_dir / "spool"

    def __repr__(self) -> str:
        shown = {
            name: _without_password(value) if name.endswith("_url") and value else value
            for name, value in msgspec.structs.asdict(self).items()
        }
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class StoreSettings(Settings, frozen=True, kw_only=True):
    """Settings that name both stores."""

    redis_url: str
    database_url: str


class ServingSettings(StoreSettings, frozen=True, kw_only=True):
    """All that `serve` needs: the stores and the signing secret."""

    jwt_secret: Secret


class _InvalidValue(Exception):
    """A value that breaks its rule. The message quotes `value`, unless it may be secret."""

    def __init__(self, rule: str, value: str | None = None) -> None:
        self.rule = rule
        self.value = value


def load(environ: Mapping[str, str]) -> Settings:
    """The settings that `environ` holds, defaults filled in.

    Raises SettingsError with every mistake: unknown `SNAPBID_*` names (typing errors would
    otherwise pass unseen) and every value that breaks its rule.
    """
    mistakes = [_unknown_setting(name) for name in sorted(environ) if _is_unknown(name)]
    values: dict[str, Any] = {}
    for variable, (field, check) in _CHECKS.items():
        text = environ.get(variable)
        if text is None or (text == "" and field not in ("jwt_secret", "ops_token")):
            continue
        try:
            values[field] = check(_text(text))
        except _InvalidValue as invalid:
            quoted = f" (found {invalid.value})" if invalid.value is not None else ""
            mistakes.append(f"{variable} {invalid.rule}{quoted}")
    host, port = values.get("host", "127.0.0.1"), values.get("port", 8000)
    if port == values.get("ops_port", 8001):
        mistakes.append(f"SNAPBID_OPS_PORT must differ from SNAPBID_PORT (found {port} in both)")
    if mistakes:
        raise SettingsError(mistakes)
    values.setdefault("base_url", url_of(host, port))
    values.setdefault("home", Path("var").absolute())
    return Settings(**values)


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that needs none of our settings, secrets among them."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("SNAPBID_") or name == "SNAPBID_DEBUG"
    }


def to_environ(settings: Settings, fields: Container[str] | None = None) -> dict[str, str]:
    """The variables that `load` reads back as the same settings, the secrets included.

    `fields`: only those of these fields.
    """
    lines: dict[str, str] = {}
    for variable, (field, _) in _CHECKS.items():
        if fields is not None and field not in fields:
            continue
        value = getattr(settings, field)
        if isinstance(value, tuple):
            value = ",".join(value) or None
        elif isinstance(value, bool):
            value = int(value)
        if value is not None:
            lines[variable] = value.reveal() if isinstance(value, Secret) else str(value)
    return lines


def require(settings: Settings, *fields: str) -> None:
    """Raise SettingsError naming every one of `fields` that is not set."""
    missing = [VARIABLES[field] for field in fields if getattr(settings, field) is None]
    if missing:
        raise SettingsError([f"{variable} must be set" for variable in missing])


def require_stores(settings: Settings) -> StoreSettings:
    """The same settings, typed; raises SettingsError where a store is not named."""
    require(settings, "redis_url", "database_url")
    return StoreSettings(**msgspec.structs.asdict(settings))


def require_serving(settings: Settings) -> ServingSettings:
    """The same settings, typed; raises SettingsError naming all that `serve` lacks."""
    require(settings, "redis_url", "database_url", "jwt_secret")
    return ServingSettings(**msgspec.structs.asdict(settings))


def _text(text: str) -> str:
    if not text.isprintable():  # lone surrogates, too: what was not UTF-8
        raise _InvalidValue("must be printable UTF-8 text")
    return text


def _integer(low: int, high: int) -> Callable[[str], int]:
    def check(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not low <= int(text) <= high:
            raise _InvalidValue(f"must be an integer from {low} to {high}", repr(text))
        return int(text)

    return check


def _host(text: str) -> str:
    if re.search(r"[\s/\[\]@]", text):
        raise _InvalidValue(
            "must be an address or a host name, without brackets or port", repr(text)
        )
    return text


def _base_url(text: str) -> str:
    try:
        url = urlsplit(text)
        good = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        good = False
    if not good or re.search(r"[\s?#]", text):
        raise _InvalidValue("must be http:// or https:// with a host, without query", repr(text))
    return text.rstrip("/")


def _store_url(*schemes: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        scheme = text.partition("://")[0]
        if "://" not in text or scheme not in schemes:
            value = f"the scheme {scheme!r}" if "://" in text else None  # may hold a password
            raise _InvalidValue(f"must start with {' or '.join(f'{s}://' for s in schemes)}", value)
        return text

    return check


def _redis_url(text: str) -> str:
    try:
        addresses.parse(text)
    except ValueError as error:
        raise _InvalidValue(str(error)) from None
    return text


def _secret(text: str) -> Secret:
    if len(text.encode()) < SECRET_MIN_BYTES:
        raise _InvalidValue(
            f"must have at least {SECRET_MIN_BYTES} bytes", f"{len(text.encode())} bytes"
        )
    return Secret(text)


def _token(text: str) -> Secret:
    if not re.fullmatch(rf"[!-~]{{{TOKEN_MIN_CHARACTERS},}}", text):
        raise _InvalidValue(
            f"must have at least {TOKEN_MIN_CHARACTERS} characters of ASCII, without spaces",
            f"{len(text)} characters",
        )
    return Secret(text)


def _home(text: str) -> Path:
    path = _path(text)
    if path.exists() and not path.is_dir():
        raise _InvalidValue("must be a directory, or be free to become one", repr(text))
    return path


def _file(text: str) -> Path:
    path = _path(text)
    if not path.is_file():
        raise _InvalidValue("must be a file that exists", repr(text))
    return path


def _path(text: str) -> Path:
    try:
        path = Path(text).expanduser().absolute()
        path.exists()  # raises for names that no file system takes
    except (OSError, RuntimeError) as error:
        raise _InvalidValue("must be a path", repr(text)) from error
    return path


def _new_file(text: str) -> Path:
    path = _path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise _InvalidValue("must be a file in a directory that exists", repr(text))
    return path


def _networks(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",")]
    try:
        return tuple(map(str, parse_networks(parts)))
    except ValueError as error:
        mistakes = "; ".join(str(error).splitlines())
        rule = f"must be addresses and networks, separated by commas: {mistakes}"
        raise _InvalidValue(rule) from None


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise _InvalidValue("must be 0 or 1", repr(text))
    return text == "1"


def _share(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+(e-[0-9]+)?", text) or not 0 < float(text) <= 1:
        raise _InvalidValue("must be a number above 0 and at most 1", repr(text))
    return float(text)


_PORT = _integer(1, 65_535)
_CHECKS: dict[str, tuple[str, Callable[[str], object]]] = {
    "SNAPBID_HOST": ("host", _host),
    "SNAPBID_PORT": ("port", _PORT),
    "SNAPBID_WORKERS": ("workers", _integer(1, 256)),
    "SNAPBID_BASE_URL": ("base_url", _base_url),
    "SNAPBID_REDIS_URL": ("redis_url", _redis_url),
    "SNAPBID_REDIS_REPLICAS": ("redis_replicas", _integer(0, 5)),
    "SNAPBID_DATABASE_URL": ("database_url", _store_url("postgresql", "postgres")),
    "SNAPBID_HOME": ("home", _home),
    "SNAPBID_JWT_SECRET": ("jwt_secret", _secret),
    "SNAPBID_JWT_ISSUER": ("jwt_issuer", str),
    "SNAPBID_GEO_DB": ("geo_db", _file),
    "SNAPBID_BID_TTL": ("bid_ttl_s", _integer(1, 2_592_000)),
    "SNAPBID_HOLD_S": ("hold_s", _integer(1, 86_400)),
    "SNAPBID_BID_MAX_BYTES": ("bid_max_bytes", _integer(1_024, 67_108_864)),
    "SNAPBID_BODY_TIMEOUT_S": ("body_timeout_s", _integer(1, 60)),
    "SNAPBID_TMAX_MS": ("tmax_ms", _integer(1, 60_000)),
    "SNAPBID_BID_CPU_MS": ("bid_cpu_ms", _integer(1, 1_000)),
    "SNAPBID_LEDGER_SHARDS": ("ledger_shards", _integer(1, 1_024)),
    "SNAPBID_SPOOL_MAX_BYTES": ("spool_max_bytes", _integer(4_096, 2**40)),
    "SNAPBID_REST_LOSSES": ("rest_losses", _integer(0, 1_000_000)),
    "SNAPBID_REST_S": ("rest_s", _integer(1, 31_536_000)),
    "SNAPBID_GVL_ID": ("gvl_id", _integer(1, 65_535)),
    "SNAPBID_TRUSTED_PROXIES": ("trusted_proxies", _networks),
    "SNAPBID_OPS_HOST": ("ops_host", _host),
    "SNAPBID_OPS_PORT": ("ops_port", _PORT),
    "SNAPBID_OPS_TOKEN": ("ops_token", _token),
    "SNAPBID_ALLOW_VOLATILE": ("allow_volatile", _switch),
    "SNAPBID_RECORD": ("record", _new_file),
    "SNAPBID_RECORD_SAMPLE": ("record_sample", _share),
    "SNAPBID_RECORD_MAX_BYTES": ("record_max_bytes", _integer(4_096, 2**40)),
    "SNAPBID_AUCTION_LOG": ("auction_log", _home),
    "SNAPBID_AUCTION_LOG_S": ("auction_log_s", _integer(1, 3_600)),
}
VARIABLES: dict[str, str] = {field: variable for variable, (field, _) in _CHECKS.items()}


def _is_unknown(name: str) -> bool:
    return name.startswith("SNAPBID_") and name not in _CHECKS and name not in KNOWN_ELSEWHERE


def _unknown_setting(name: str) -> str:
    near = difflib.get_close_matches(name, _CHECKS, n=1)
    return f"{name} is not a setting" + (f": is {near[0]} meant?" if near else "")


def reachable(host: str) -> str:
    """The address at which a client on this machine reaches what is bound to `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url_of(host: str, port: int) -> str:
    return f"http://{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _without_password(url: str) -> str:
    return re.sub(r"(?<=://).*(?=@)|(?<=password=)[^&]*", "…", url)
