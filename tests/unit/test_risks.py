"""What the configuration of a Redis may lose, from what the server says of itself."""

import logging
from typing import Any

import pytest

from snapbid.base.risks import NAMES, Risk, RiskLog, forbids
from snapbid.redisclient.risks import judge

INFO: dict[str, Any] = {
    "redis_version": "7.0.15",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "maxmemory_policy": "noeviction",
    "role": "master",
}
UP = {"syslog-ident": "snapbid-up"}


@pytest.mark.parametrize(
    ("info", "config", "expected"),
    [
        ({}, {}, {}),
        ({}, {"appendfsync": "everysec", "syslog-ident": "redis"}, {}),
        ({"redis_version": "6.2.0"}, {}, {}),
        ({"redis_version": "10.1.0"}, {}, {}),
        ({"redis_version": "6.0.16"}, {}, {"version": "unsupported"}),
        ({"aof_enabled": 0}, {}, {"appendonly": "volatile"}),
        ({"maxmemory_policy": "volatile-ttl"}, {}, {"eviction": "volatile"}),
        ({"role": "slave", "slave_read_only": 1}, {}, {"replica": "readonly"}),
        ({"role": "slave", "slave_read_only": 0}, {}, {"replica": "volatile"}),
        ({}, {"appendfsync": "no", "syslog-ident": "redis"}, {"appendfsync": "weak"}),
        ({}, {"appendfsync": "no", "syslog-ident": "snapbid-up"}, {}),
        ({"aof_last_write_status": "err"}, {}, {"aof_write": "readonly"}),
        ({"rdb_last_bgsave_status": "err"}, {"save": "3600 1"}, {"rdb_write": "readonly"}),
        ({"rdb_last_bgsave_status": "err"}, {}, {"rdb_write": "readonly"}),
        ({"rdb_last_bgsave_status": "err"}, {"save": ""}, {}),
        ({"rdb_last_bgsave_status": "err"}, {"stop-writes-on-bgsave-error": "no"}, {}),
        ({"used_memory": 89, "maxmemory": 100}, {}, {}),
        ({"used_memory": 90, "maxmemory": 100}, {}, {"memory": "weak"}),
        ({"used_memory": 94, "maxmemory": 100}, UP, {"memory": "weak"}),
        ({"used_memory": 95, "maxmemory": 100}, UP, {"memory": "readonly"}),
        ({"used_memory": 100, "maxmemory": 100}, {}, {"memory": "readonly"}),
        ({"used_memory": 100, "maxmemory": 0}, {}, {}),
        ({"used_memory": 9, "maxmemory": 1}, UP, {"memory": "readonly"}),
        (
            {"aof_enabled": 0, "maxmemory_policy": "allkeys-lru"},
            {},
            {"appendonly": "volatile", "eviction": "volatile"},
        ),
    ],
)
def test_what_a_redis_risks(
    info: dict[str, Any], config: dict[str, Any], expected: dict[str, str]
) -> None:
    risks = judge(INFO | info, config, "Redis", "redis-cli -h h")
    assert {risk.name: risk.severity for risk in risks} == expected
    assert set(expected) <= set(NAMES["redis"])
    remedies = [risk.remedy for risk in risks if "redis-cli" in risk.remedy]
    assert all("run `redis-cli -h h " in remedy for remedy in remedies)


def test_what_forbids_a_start() -> None:
    def forbidden(severity: Any) -> list[bool]:
        risk = Risk("redis", "x", severity, "text", "remedy")
        return [forbids(risk, allow_volatile=allow) for allow in (False, True)]

    assert forbidden("unsupported") == [True, True]
    assert forbidden("volatile") == [True, False]
    assert forbidden("weak") == [False, False]
    assert forbidden("readonly") == [False, False]


def test_each_risk_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = RiskLog()
    risk = Risk("redis", "eviction", "volatile", "it evicts", "stop that")
    for _ in range(2):
        log.update("redis", [risk])
    log.update("warehouse", [])
    for _ in range(2):
        log.update("redis", [])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "it evicts: stop that"),
        ("INFO", "resolved: it evicts"),
    ]
