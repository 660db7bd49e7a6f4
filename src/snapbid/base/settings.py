"""Settings: `SNAPBID_*` environment variables, checked once, as one frozen struct (contract 1).

Raw strings are checked and converted in one step, and the result is passed down. `load` raises one
`SettingsError` that names all mistakes. An empty variable counts as unset, but an empty secret or
base URL is a mistake, since nobody leaves one empty on purpose.
"""

import difflib
import re
import socket
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import msgspec

from snapbid.base import logs
from snapbid.base import setting_values as rules
from snapbid.base.setting_values import Secret

KNOWN_ELSEWHERE = frozenset((  # read by setup.py, the tests and `snapbid load`
    "SNAPBID_DEBUG", "SNAPBID_CORPUS", "SNAPBID_VAST_SAMPLES",
    "SNAPBID_API_KEY", "SNAPBID_REPORT_TOKEN",
))  # fmt: skip


class SettingsError(ValueError):
    """Settings that are wrong or missing, one per line. Commands then exit with status 2."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, checked. Names of durations end in the unit; paths are absolute."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    base_url: str  # prefix of notification URLs, without a trailing slash
    redis_url: str | None = None
    redis_replicas: int | None = None  # that must confirm a write; None: auto (replicas.py)
    database_url: str | None = None
    home: Path
    jwt_secret: Secret | None = None
    jwt_issuer: str = "snapbid"
    geo_db: Path | None = None  # None: the country database that ships
    bid_ttl_s: int = 7200
    hold_s: int = 60  # how long a bid holds its cost, and a capped user's impression
    bid_max_bytes: int = 262_144  # of a decompressed body
    body_timeout_s: int = 5  # for a request's body to arrive
    idle_timeout_s: int = 155  # of a connection; exchanges keep theirs for 150
    tmax_ms: int = 100  # for requests without one
    bid_cpu_ms: int = 10  # processor time that a bid request may take
    max_quantity: int = 1000  # limit on qty.multiplier
    ledger_shards: int | None = None  # None: as many as the ledger has; see `shards`
    spool_max_bytes: int = 67_108_864  # notices on disk while Redis is unavailable, per worker
    suspend_losses: int = 3  # rejections after which an SSP's creative is suspended; 0: never
    suspend_share: float = 0.2  # of its bids there that must be rejected as well
    suspend_s: int = 86_400
    events_days: int | None = None  # how long server events are kept; None: forever
    signed_notices: bool = False  # for every SSP; else for those marked in the registry
    gvl_id: int | None = None  # our id in the IAB Global Vendor List
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For is trusted
    ops_host: str = "127.0.0.1"
    ops_port: int = 8001
    ops_token: Secret | None = None  # of the private port
    allow_volatile: bool = False  # start on stores that may lose what they acknowledge
    record: Path | None = None  # where sampled bid requests are kept for replay
    record_sample: float = 0.01  # of all bid requests
    record_max_bytes: int = 268_435_456  # of that file
    auction_log: Path | None = None  # the directory of the auction log
    auction_log_s: int = 300  # until a row reaches one of its files
    log: str = "text"  # format of log lines; `base/logs.py` reads it from the environment

    @property
    def shards(self) -> int:
        """The ledger's number of shards, known after the preflight (`operations/preflight.py`)."""
        assert self.ledger_shards is not None
        return self.ledger_shards

    @property
    def runtime_dir(self) -> Path:
        """The directory shared by the processes of the server on this port."""
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
    """Settings with everything that `serve` requires: both stores and the signing secret."""

    jwt_secret: Secret


def load(environ: Mapping[str, str]) -> Settings:
    """Load the settings from `environ`, with defaults filled in.

    Raises SettingsError listing all mistakes: unknown `SNAPBID_*` names (typos would otherwise go
    unnoticed) and values that break their rules.
    """
    mistakes = [
        _unknown_setting(name)
        for name, value in sorted(environ.items())
        if _is_unknown(name, value)
    ]
    values: dict[str, Any] = {}
    for variable, (field, check) in _CHECKS.items():
        text = environ.get(variable)
        if text is None or (text == "" and field not in _NEVER_EMPTY):
            continue
        try:
            values[field] = check(rules.unquoted(rules.printable(text)))
        except rules.InvalidValueError as invalid:
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
    """Return `environ` without our settings, except SNAPBID_LOG and SNAPBID_DEBUG."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("SNAPBID_") or name in ("SNAPBID_DEBUG", logs.VARIABLE)
    }


def to_environ(settings: Settings, fields: Container[str] | None = None) -> dict[str, str]:
    """Return the variables from which `load` reads these settings, secrets included.

    `fields`: the settings to include; None for all.
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
    """Raise SettingsError naming each of `fields` that is unset."""
    missing = [VARIABLES[field] for field in fields if getattr(settings, field) is None]
    if missing:
        raise SettingsError([f"{variable} must be set" for variable in missing])


def require_stores(settings: Settings) -> StoreSettings:
    """Return the settings as StoreSettings. Raises SettingsError if a store is unset."""
    require(settings, "redis_url", "database_url")
    return StoreSettings(**msgspec.structs.asdict(settings))


def require_serving(settings: Settings) -> ServingSettings:
    """Return the settings as ServingSettings. Raises SettingsError naming any that are unset."""
    require(settings, "redis_url", "database_url", "jwt_secret")
    return ServingSettings(**msgspec.structs.asdict(settings))


_PORT = rules.port
# An empty secret would let anybody in, and notices for an empty base URL would be lost. A template
# that was not filled in has them empty.
_NEVER_EMPTY = ("jwt_secret", "ops_token", "base_url")

_CHECKS: dict[str, tuple[str, Callable[[str], object]]] = {
    "SNAPBID_HOST": ("host", rules.host),
    "SNAPBID_PORT": ("port", _PORT),
    "SNAPBID_WORKERS": ("workers", rules.integer(1, 256)),
    "SNAPBID_BASE_URL": ("base_url", rules.base_url),
    "SNAPBID_REDIS_URL": ("redis_url", rules.redis_url),
    "SNAPBID_REDIS_REPLICAS": ("redis_replicas", rules.auto_or_integer(0, 5)),
    "SNAPBID_DATABASE_URL": ("database_url", rules.database_url),
    "SNAPBID_HOME": ("home", rules.home),
    "SNAPBID_JWT_SECRET": ("jwt_secret", rules.secret),
    "SNAPBID_JWT_ISSUER": ("jwt_issuer", rules.word),
    "SNAPBID_GEO_DB": ("geo_db", rules.file),
    "SNAPBID_BID_TTL": ("bid_ttl_s", rules.integer(1, 2_592_000)),
    "SNAPBID_HOLD_S": ("hold_s", rules.integer(1, 86_400)),
    "SNAPBID_BID_MAX_BYTES": ("bid_max_bytes", rules.integer(1_024, 67_108_864)),
    "SNAPBID_BODY_TIMEOUT_S": ("body_timeout_s", rules.integer(1, 60)),
    "SNAPBID_IDLE_TIMEOUT_S": ("idle_timeout_s", rules.integer(1, 3600)),
    "SNAPBID_TMAX_MS": ("tmax_ms", rules.integer(1, 60_000)),
    "SNAPBID_BID_CPU_MS": ("bid_cpu_ms", rules.integer(1, 1_000)),
    "SNAPBID_MAX_QUANTITY": ("max_quantity", rules.integer(1, 1_000_000)),
    "SNAPBID_LEDGER_SHARDS": ("ledger_shards", rules.integer(1, 1_024)),
    "SNAPBID_SPOOL_MAX_BYTES": ("spool_max_bytes", rules.integer(4_096, 2**40)),
    "SNAPBID_SUSPEND_LOSSES": ("suspend_losses", rules.integer(0, 1_000_000)),
    "SNAPBID_SUSPEND_SHARE": ("suspend_share", rules.share),
    "SNAPBID_SUSPEND_S": ("suspend_s", rules.integer(1, 31_536_000)),
    "SNAPBID_EVENTS_DAYS": ("events_days", rules.integer(1, 1_000)),
    "SNAPBID_SIGNED_NOTICES": ("signed_notices", rules.switch),
    "SNAPBID_GVL_ID": ("gvl_id", rules.integer(1, 65_535)),
    "SNAPBID_TRUSTED_PROXIES": ("trusted_proxies", rules.networks),
    "SNAPBID_OPS_HOST": ("ops_host", rules.host),
    "SNAPBID_OPS_PORT": ("ops_port", _PORT),
    "SNAPBID_OPS_TOKEN": ("ops_token", rules.token),
    "SNAPBID_ALLOW_VOLATILE": ("allow_volatile", rules.switch),
    "SNAPBID_RECORD": ("record", rules.new_file),
    "SNAPBID_RECORD_SAMPLE": ("record_sample", rules.share),
    "SNAPBID_RECORD_MAX_BYTES": ("record_max_bytes", rules.integer(4_096, 2**40)),
    "SNAPBID_AUCTION_LOG": ("auction_log", rules.home),
    "SNAPBID_AUCTION_LOG_S": ("auction_log_s", rules.integer(1, 3_600)),
    logs.VARIABLE: ("log", rules.choice(*logs.FORMS)),
}
VARIABLES: dict[str, str] = {field: variable for variable, (field, _) in _CHECKS.items()}


# Kubernetes adds these to every pod, for each Service of the namespace: here for `snapbid` or
# `snapbid-…`. There is also NAME_PORT, a URL.
_OF_SERVICE = re.compile(
    r"SNAPBID_(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)


def _is_unknown(name: str, value: str) -> bool:
    if not name.startswith("SNAPBID_") or name in _CHECKS or name in KNOWN_ELSEWHERE:
        return False
    is_address = name.endswith("_PORT") and rules.SERVICE_URL.match(value)
    return not (is_address or _OF_SERVICE.fullmatch(name))


def _unknown_setting(name: str) -> str:
    near = difflib.get_close_matches(name, _CHECKS, n=1)
    return f"{name} is not a setting" + (f": did you mean {near[0]}?" if near else "")


def reachable(host: str) -> str:
    """Return the address at which a local client reaches a server bound to `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def bound(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the address family and the socket address for listening on a host. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return family, (str(address[0]), port)


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _without_password(url: str) -> str:
    return re.sub(r"(?<=://).*(?=@)|(?<=password=)[^&]*", "…", url)
