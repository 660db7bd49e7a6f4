"""Results of load tests, as `snapbid load --json` writes them."""

from typing import Any

CLIENT = {
    "cpu_percent": 2.0, "waited_percent": 0.0, "lag_p99_ms": 0.1, "connection_wait_p99_ms": 0.0,
    "limited": False, "pool_full": False, "why": "",
}  # fmt: skip


def phase(name: str, p99: float, **more: Any) -> dict[str, Any]:
    names = ("p50", "p90", "p99", "p99.9", "p99.99", "max")
    figures = {
        "name": name, "measured": True, "seconds": 2.0, "rate": 100.0, "offered": 200,
        "answered": 200, "dropped": 0, "completed_per_s": 100.0, "bid_percent": 80.0,
        "error_percent": 0.0, "kinds": {"bid": 160, "no bid": 40},
        "latency_ms": dict.fromkeys(names, p99), "curve": [[0.0, 0.5], [99.0, p99], [100.0, p99]],
        "failures": [], "client": CLIENT, "held": True, "missed": "",
        "series": [{"at_s": 0, "offered": 100, "bad": 0, "p50_ms": 1.0, "p99_ms": p99}],
    }  # fmt: skip
    return figures | more


def result(*phases: dict[str, Any], **more: Any) -> dict[str, Any]:
    nothing = {"fired": {}, "failed": {}, "latency_ms": {}, "example": "", "elsewhere": ""}
    return {
        "target": "http://127.0.0.1:8000", "started": "2026-01-01 00:00:00 UTC", "version": "1",
        "seed": 1, "settings": {"connections": "64"}, "phases": [*phases], "objectives": [],
        "capacity": None, "capacity_note": "", "notices": nothing, "events": None,
        "reconciliation": {"status": "not done", "rows": [], "detail": ""},
        "verdict": {"ok": True, "reason": ""}, **more,
    }  # fmt: skip
