"""Settings: defaults, every mistake at once, no secret shown."""

import contextlib
import os
import pickle
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapbid.base.setting_values import Secret
from snapbid.base.settings import (
    VARIABLES,
    Settings,
    SettingsError,
    load,
    require,
    require_serving,
    require_stores,
    to_environ,
)

SECRET = "correct horse battery staple 0123456789"
TOKEN = "a-token-of-the-tests"


def mistakes(environ: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(environ)
    assert str(caught.value) == "\n".join(caught.value.mistakes)
    return caught.value.mistakes


def test_defaults() -> None:
    settings = load({"PATH": "/bin"})
    assert msgspec.structs.asdict(settings) == {
        "host": "127.0.0.1",
        "port": 8000,
        "workers": 1,
        "base_url": "http://127.0.0.1:8000",
        "redis_url": None,
        "redis_replicas": None,
        "database_url": None,
        "home": Path("var").absolute(),
        "jwt_secret": None,
        "jwt_issuer": "snapbid",
        "geo_db": None,
        "bid_ttl_s": 7200,
        "bid_max_bytes": 262_144,
        "body_timeout_s": 5,
        "idle_timeout_s": 155,
        "tmax_ms": 100,
        "max_quantity": 1000,
        "bid_cpu_ms": 10,
        "hold_s": 60,
        "ledger_shards": None,
        "spool_max_bytes": 67_108_864,
        "suspend_losses": 3,
        "suspend_share": 0.2,
        "suspend_s": 86_400,
        "events_days": None,
        "signed_notices": False,
        "gvl_id": None,
        "trusted_proxies": (),
        "ops_host": "127.0.0.1",
        "ops_port": 8001,
        "ops_token": None,
        "allow_volatile": False,
        "record": None,
        "record_sample": 0.01,
        "record_max_bytes": 268_435_456,
        "auction_log": None,
        "auction_log_s": 300,
        "log": "text",
    }


def test_every_field_has_a_variable() -> None:
    assert set(VARIABLES) == set(Settings.__struct_fields__)


@pytest.mark.parametrize(
    ("environ", "base_url"),
    [
        ({"SNAPBID_HOST": "0.0.0.0", "SNAPBID_PORT": "80"}, "http://0.0.0.0:80"),
        ({"SNAPBID_HOST": "::1"}, "http://[::1]:8000"),
        ({"SNAPBID_BASE_URL": "https://rtb.example.com/"}, "https://rtb.example.com"),
        ({"SNAPBID_BASE_URL": "http://rtb.example.com:81/x"}, "http://rtb.example.com:81/x"),
        ({}, "http://127.0.0.1:8000"),
    ],
)
def test_base_url(environ: dict[str, str], base_url: str) -> None:
    assert load(environ).base_url == base_url


def test_replicas_are_a_number_or_auto() -> None:
    assert load({"SNAPBID_REDIS_REPLICAS": "auto"}).redis_replicas is None
    assert load({"SNAPBID_REDIS_REPLICAS": "0"}).redis_replicas == 0
    for wrong in ("6", "Auto", "-1"):
        (mistake,) = mistakes({"SNAPBID_REDIS_REPLICAS": wrong})
        assert mistake == (
            f"SNAPBID_REDIS_REPLICAS must be an integer from 0 to 5, or auto (found {wrong!r})"
        )


def test_settings_round_trip(tmp_path: Path) -> None:
    (tmp_path / "geo.mmdb").touch()
    environ = {
        "SNAPBID_HOST": "0.0.0.0",
        "SNAPBID_PORT": "9000",
        "SNAPBID_WORKERS": "4",
        "SNAPBID_BASE_URL": "https://rtb.example.com",
        "SNAPBID_REDIS_URL": "unix:///run/redis.sock",
        "SNAPBID_REDIS_REPLICAS": "2",
        "SNAPBID_DATABASE_URL": "postgresql://u:p@h/d",
        "SNAPBID_HOME": str(tmp_path),
        "SNAPBID_JWT_SECRET": SECRET,
        "SNAPBID_JWT_ISSUER": "house",
        "SNAPBID_GEO_DB": str(tmp_path / "geo.mmdb"),
        "SNAPBID_BID_TTL": "60",
        "SNAPBID_BID_MAX_BYTES": "4096",
        "SNAPBID_BODY_TIMEOUT_S": "7",
        "SNAPBID_IDLE_TIMEOUT_S": "90",
        "SNAPBID_TMAX_MS": "250",
        "SNAPBID_MAX_QUANTITY": "120",
        "SNAPBID_BID_CPU_MS": "25",
        "SNAPBID_HOLD_S": "30",
        "SNAPBID_LEDGER_SHARDS": "4",
        "SNAPBID_SPOOL_MAX_BYTES": "1048576",
        "SNAPBID_SUSPEND_LOSSES": "5",
        "SNAPBID_SUSPEND_SHARE": "0.5",
        "SNAPBID_SUSPEND_S": "3600",
        "SNAPBID_SIGNED_NOTICES": "1",
        "SNAPBID_EVENTS_DAYS": "90",
        "SNAPBID_GVL_ID": "755",
        "SNAPBID_TRUSTED_PROXIES": "10.0.0.0/8,::1/128",
        "SNAPBID_OPS_HOST": "10.0.0.1",
        "SNAPBID_OPS_PORT": "9001",
        "SNAPBID_OPS_TOKEN": TOKEN,
        "SNAPBID_ALLOW_VOLATILE": "1",
        "SNAPBID_RECORD": str(tmp_path / "record.jsonl"),
        "SNAPBID_RECORD_SAMPLE": "1e-05",
        "SNAPBID_RECORD_MAX_BYTES": "1048576",
        "SNAPBID_AUCTION_LOG": str(tmp_path / "auctions"),
        "SNAPBID_AUCTION_LOG_S": "60",
        "SNAPBID_LOG": "json",
    }
    assert set(environ) == set(VARIABLES.values())
    settings = load(environ)
    assert to_environ(settings) == environ
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SNAPBID_HOST", "a b"),
        ("SNAPBID_HOST", "[::1]"),
        ("SNAPBID_HOST", "h\udcff"),
        ("SNAPBID_PORT", "0"),
        ("SNAPBID_PORT", "65536"),
        ("SNAPBID_PORT", "+80"),
        ("SNAPBID_PORT", "\uff18\uff10"),
        ("SNAPBID_PORT", "8001"),  # the operator's page has it
        ("SNAPBID_WORKERS", "0"),
        ("SNAPBID_WORKERS", "two"),
        ("SNAPBID_BASE_URL", "rtb.example.com"),
        ("SNAPBID_BASE_URL", "ftp://rtb.example.com"),
        ("SNAPBID_BASE_URL", "https://user:word@rtb.example.com"),
        ("SNAPBID_JWT_SECRET", " " * 32),
        ("SNAPBID_JWT_ISSUER", "our house"),
        ("SNAPBID_BASE_URL", "http://"),
        ("SNAPBID_BASE_URL", ""),
        ("SNAPBID_BASE_URL", "http://h:99999"),
        ("SNAPBID_BASE_URL", "http://h/?a=b"),
        ("SNAPBID_REDIS_URL", "localhost:6379"),
        ("SNAPBID_DATABASE_URL", "mysql://h/d"),
        ("SNAPBID_JWT_SECRET", "x" * 31),
        ("SNAPBID_JWT_SECRET", ""),
        ("SNAPBID_ALLOW_VOLATILE", "yes"),
        ("SNAPBID_GEO_DB", "/nowhere/geo.mmdb"),
        ("SNAPBID_HOME", "/dev/null"),
        ("SNAPBID_HOME", "~nobody-of-this-name/x"),
        ("SNAPBID_BID_TTL", "-1"),
        ("SNAPBID_BID_TTL", "7200.0"),
        ("SNAPBID_BID_MAX_BYTES", "1"),
        ("SNAPBID_BODY_TIMEOUT_S", "0"),
        ("SNAPBID_IDLE_TIMEOUT_S", "0"),
        ("SNAPBID_TMAX_MS", "0"),
        ("SNAPBID_MAX_QUANTITY", "0"),
        ("SNAPBID_MAX_QUANTITY", "1000001"),
        ("SNAPBID_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("SNAPBID_TRUSTED_PROXIES", "10.0.0.1,"),
        ("SNAPBID_GVL_ID", "70000"),
        ("SNAPBID_RECORD", "/nowhere/at/all"),
        ("SNAPBID_RECORD_SAMPLE", "nan"),
        ("SNAPBID_RECORD_SAMPLE", "1.1"),
        ("SNAPBID_RECORD_SAMPLE", "0"),
        ("SNAPBID_OPS_PORT", "8000"),
        ("SNAPBID_LOG", "yaml"),
        ("SNAPBID_OPS_TOKEN", ""),
        ("SNAPBID_OPS_TOKEN", "x" * 15),
        ("SNAPBID_OPS_TOKEN", "with a space " * 2),
    ],
)
def test_wrong_value_is_named(variable: str, value: str) -> None:
    (mistake,) = mistakes({variable: value})
    assert variable in mistake
    assert "must" in mistake


def test_path_problems_are_named() -> None:
    (long,) = mistakes({"SNAPBID_HOME": "x" * 5000})
    assert long.startswith("SNAPBID_HOME cannot be used: File name too long (found ")
    with closed_directory() as closed:
        (denied,) = mistakes({"SNAPBID_HOME": f"{closed}/home"})
    assert denied == f"SNAPBID_HOME cannot be used: Permission denied (found '{closed}/home')"


@contextlib.contextmanager
def closed_directory() -> Iterator[str]:
    """A directory that is closed to this process, which is another user's if it is root's."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0)
        me = os.geteuid()
        if me == 0:
            os.seteuid(65_534)
        try:
            yield folder
        finally:
            os.seteuid(me)
            os.chmod(folder, 0o700)


def test_every_mistake_at_once() -> None:
    wrong = {
        "SNAPBID_PORT": "x",
        "SNAPBID_WORKERS": "none",
        "SNAPBID_BID_TLT": "5",
        "SNAPBID_JWT_SECRET": "short",
        "SNAPBID_REDIS_URL": "http://:hunter2@h",
    }
    lines = mistakes(wrong)
    assert {re.split(r"\W", line)[0] for line in lines} == set(wrong)
    assert "SNAPBID_BID_TLT is not a setting: did you mean SNAPBID_BID_TTL?" in lines


def test_unrelated_variables_are_ignored() -> None:
    load({"SNAPBID_DEBUG": "1", "SNAPBID_CORPUS": "/x", "SNAPBIDDER": "1", "PORT": "x"})


def test_nothing_secret_is_shown() -> None:
    settings = load(
        {
            "SNAPBID_JWT_SECRET": SECRET,
            "SNAPBID_OPS_TOKEN": TOKEN,
            "SNAPBID_REDIS_URL": "redis://:hunter2@h/0",
            "SNAPBID_DATABASE_URL": "postgresql://u:hun@ter2@h/d?password=hunter2&x=1",
        }
    )
    for shown in (repr(settings), str(settings), f"{settings}", repr([settings])):
        assert SECRET not in shown
        assert TOKEN not in shown
        assert "hunter2" not in shown
        assert "ter2" not in shown
    shown = "\n".join(mistakes({"SNAPBID_JWT_SECRET": "hunter2", "SNAPBID_REDIS_URL": "hunter2"}))
    assert "hunter2" not in shown


def test_require() -> None:
    settings = load({"SNAPBID_REDIS_URL": "redis://h"})
    require(settings, "redis_url", "host")
    with pytest.raises(SettingsError) as caught:
        require(settings, "redis_url", "database_url", "jwt_secret")
    assert [line.split()[0] for line in caught.value.mistakes] == [
        "SNAPBID_DATABASE_URL",
        "SNAPBID_JWT_SECRET",
    ]
    with pytest.raises(SettingsError) as caught:
        require_stores(settings)
    assert caught.value.mistakes == ["SNAPBID_DATABASE_URL must be set"]


def test_what_serving_requires() -> None:
    environ = {
        "SNAPBID_REDIS_URL": "redis://h",
        "SNAPBID_DATABASE_URL": "postgresql://h/d",
        "SNAPBID_PORT": "80",
    }
    with pytest.raises(SettingsError) as caught:
        require_serving(load(environ))
    assert caught.value.mistakes == ["SNAPBID_JWT_SECRET must be set"]
    settings = load(environ | {"SNAPBID_JWT_SECRET": "é" * 16})
    serving = require_serving(settings)
    assert msgspec.structs.asdict(serving) == msgspec.structs.asdict(settings)
    assert serving.jwt_secret.key() == "é".encode() * 16
    assert "é" not in repr(serving)
    assert to_environ(require_stores(settings)) == to_environ(settings)


def test_secrets_compare() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


@given(st.dictionaries(st.sampled_from(sorted(VARIABLES.values())), st.text()))
def test_any_text_loads_or_is_refused_by_name(environ: dict[str, str]) -> None:
    try:
        load(environ)
    except SettingsError as error:
        unnamed = [line for line in error.mistakes if not line.startswith("SNAPBID_")]
        if unnamed:
            pytest.fail(f"no setting named: {unnamed}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2#x@h:1/d",
        "postgresql://u:1#hunter2@h:1/d",
        "postgresql://u:hunter2?x@h:1/d",
        "postgresql://u:1?hunter2@h:1/d",
        "postgresql://u:hunter2/x@h:1/d",
        "postgresql://u:hunter2[@h:1/d",
        "postgresql://u:hunter2@h:port/d",
    ],
)
def test_a_database_url_with_a_special_character_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({"SNAPBID_DATABASE_URL": url})
    (mistake,) = refused.value.mistakes
    assert mistake.startswith("SNAPBID_DATABASE_URL must be like postgresql://")
    assert "hunter2" not in mistake


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/d",
        "postgres://u@h",
        "postgresql://u:p%23%2F%3F%40@[::1]:5432/d?sslmode=require&application_name=x",
        "postgresql://u:p@a:1,b:2/d",
        "postgresql:///d?host=/var/run/postgresql",
        "postgresql://u@%2Frun%2Fpg:65535/d",
        "postgresql:///d?host=/run/pg,b:1,[::1]:2&port=5432,5433,5434",
        "postgresql:///d?port=",
        "postgresql://h/d?sslmode=verify-full&sslrootcert=/ca.pem&ssl_min_protocol_version=TLSv1.3",
        "postgresql://h/d?sslmode=verify_ca&target_session_attrs=read-write&sslnegotiation=direct",
    ],
)
def test_database_urls(url: str) -> None:
    assert load({"SNAPBID_DATABASE_URL": url}).database_url == url


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("postgresql://u:hunter2@h:65536/d", "ports from 1 to 65535"),
        ("postgresql://u:hunter2@h:99999999/d", "ports from 1 to 65535"),
        ("postgresql://u:hunter2@h:0/d", "ports from 1 to 65535"),
        ("postgresql://u:hunter2@[::1]:70000,h:1/d", "ports from 1 to 65535"),
        ("postgresql://u:70000/hunter2@h/d", "ports from 1 to 65535"),
        ("postgresql://u:hunter2@h:-1/d", "like postgresql://"),
        ("postgresql://u:hunter2@h:/d", "like postgresql://"),
        ("postgresql://u:hunter2@a,,b/d", "like postgresql://"),
        ("postgresql:///d?host=::1", "like postgresql://"),
        ("postgresql:///d?port=0", "ports from 1 to 65535"),
        ("postgresql:///d?port=5432,-1&host=a,b", "ports from 1 to 65535"),
        ("postgresql:///d?port=x", "ports from 1 to 65535"),
        ("postgresql:///d?port=%EF%BC%91", "ports from 1 to 65535"),
        ("postgresql:///d?host=a:70000", "ports from 1 to 65535"),
        ("postgresql:///d?host=/run/pg,b:x", "like postgresql://"),
        ("postgresql://h/d?sslmode=bogus", "disable, allow, prefer, require, verify-ca or"
         " verify-full in the option sslmode (found 'bogus')"),
        ("postgresql://h/d?sslmode=Require", "in the option sslmode (found 'Require')"),
        ("postgresql://h/d?target_session_attrs=bogus", "any, primary, standby, read-write,"
         " read-only or prefer-standby in the option target_session_attrs (found 'bogus')"),
        ("postgresql://h/d?sslnegotiation=tls",
         "postgres or direct in the option sslnegotiation (found 'tls')"),
        ("postgresql://h/d?ssl_min_protocol_version=1.2",
         "in the option ssl_min_protocol_version (found '1.2')"),
        ("postgresql://h/d?gsslib=x", "gssapi or sspi in the option gsslib (found 'x')"),
    ],
)  # fmt: skip
def test_a_database_url_that_cannot_work_is_refused(url: str, rule: str) -> None:
    (mistake,) = mistakes({"SNAPBID_DATABASE_URL": url})
    assert mistake.startswith("SNAPBID_DATABASE_URL must ")
    assert rule in mistake
    assert "hunter2" not in mistake


@pytest.mark.parametrize("service", ["", "SERVE_", "REDIS_"])
def test_variables_that_kubernetes_adds_for_a_service_are_no_settings(service: str) -> None:
    prefix, url = f"SNAPBID_{service}", "tcp://10.96.7.7:80"
    added = {f"{prefix}SERVICE_HOST": "10.96.7.7", f"{prefix}SERVICE_PORT": "80",
             f"{prefix}SERVICE_PORT_HTTP": "80", f"{prefix}PORT_80_TCP": url,
             f"{prefix}PORT_80_TCP_PROTO": "tcp", f"{prefix}PORT_80_TCP_PORT": "80",
             f"{prefix}PORT_80_TCP_ADDR": "10.96.7.7"}  # fmt: skip
    assert load({**added, f"{prefix}PORT": url if service else "8000"}) == load({})
    for name in (f"{prefix}SERVICE_HOSTS", f"{prefix}PORT_X_TCP", "SNAPBID_SERVE_PORT"):
        assert name in mistakes({name: "80"})[0]


@pytest.mark.parametrize("name", ["SNAPBID_PORT", "SNAPBID_OPS_PORT"])
def test_a_port_that_kubernetes_set_is_explained(name: str) -> None:
    (line,) = mistakes({name: "tcp://10.96.7.7:80"})
    assert line.startswith(f"{name} must be an integer from 1 to 65535")
    assert "enableServiceLinks: false" in line


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize(
    "name", ["SNAPBID_JWT_SECRET", "SNAPBID_OPS_TOKEN", "SNAPBID_DATABASE_URL"]
)
def test_quotes_that_docker_keeps_are_refused(name: str, quote: str) -> None:
    value = "postgresql://u:hunter2@h/d" if name.endswith("URL") else SECRET.replace(" ", "-")
    assert load({name: value})
    (line,) = mistakes({name: f"{quote}{value}{quote}"})
    assert line.startswith(f"{name} must not be in quotes")
    assert value not in line
