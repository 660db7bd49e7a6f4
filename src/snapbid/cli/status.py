"""`snapbid status`: the running server's state on one screen, from its private port."""

import os
import sys
from typing import Any

import click

from snapbid.base.reasons import reason
from snapbid.base.settings import Settings, load, reachable, url_of
from snapbid.base.words import utc
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

PATIENCE_S = 5.0


@click.command(cls=ShellCommand, examples=["snapbid status", "snapbid status --json"])
@click.option("--json", "as_json", is_flag=True, help="Print the JSON object of /ops/data.")
def status(as_json: bool) -> None:
    """Show whether this machine's server bids and, if it has problems, why and what to do.

    Also shows stores, versions, current rates and today's figures. Exit status: 0 if it bids, 1 if
    it is degraded, does not bid or is not running.
    """
    import msgspec

    settings = load(os.environ)
    env = console.running(settings)
    body = _ask(settings if env is None else load(env))
    data = msgspec.json.decode(body)
    if as_json:
        click.echo(msgspec.json.format(body).decode())
    else:
        for line in _lines(data):
            console.say(line)
    sys.exit(int(data["verdict"]["state"] != "bidding"))


def _ask(settings: Settings) -> bytes:
    """Fetch the figures from the private port. Raises Refused."""
    import http.client
    import urllib.error
    import urllib.request

    url = url_of(reachable(settings.ops_host), settings.ops_port)
    request = urllib.request.Request(f"{url}/ops/data")
    if settings.ops_token is not None:
        request.add_header("Authorization", f"Bearer {settings.ops_token.reveal()}")
    own = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with own.open(request, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise console.Refused(
            f"the private port at {url} answered {error.code}: check that SNAPBID_OPS_TOKEN is the "
            "server's token"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        said = reason(why, url) if isinstance(why, Exception) else str(why)
        raise console.Refused(
            f"no server answers on the private port (SNAPBID_OPS_PORT): {said}: "
            "start one with snapbid up or snapbid serve"
        ) from error


def _lines(data: dict[str, Any]) -> list[str]:
    verdict, about, now = data["verdict"], data["about"], data["now"] or {}
    lines = [f"{verdict['state']} since {utc(verdict['since'])}"]
    if verdict["note"]:
        lines[0] += f" ({verdict['note']})"
    for cause in verdict["causes"]:
        lines += [
            f"  {cause['text']}, since {utc(cause['since'])}",
            f"    to do: {cause['remedy']}",
        ]
    rows = [
        (
            "server",
            f"{about['machine']}, port {about['port']}, version {about['version']}, "
            f"{console.counted(about['workers'], 'worker')}, "
            f"up {_span(data['at'] - about['started_at'])}",
        ),
        ("stores", f"Redis {_redis(data)}, PostgreSQL {_store(data, 'warehouse')}"),
        ("drain", _drain(data)),
        ("audit", _audit(data)),
        *([] if data["auction_log_bytes"] is None else [("log", _log(data))]),
        ("now", _now(data, now)),
        ("today", _today(data)),
        ("setup", f"{_many(data['campaigns'], 'campaign')}, {_many(data['ssps_known'], 'SSP')}"),
    ]
    return [*lines, *(f"{name:<8}{text}" for name, text in rows)]


def _store(data: dict[str, Any], name: str) -> str:
    """Describe a store's state: up, unavailable, unknown, or refusing writes."""
    has = [risk["severity"] for risk in data["risks"] if risk["store"] == name]
    if data[name] and "readonly" in has:
        return "refuses writes"
    return {True: "up", False: "unavailable", None: "unknown"}[data[name]]


def _redis(data: dict[str, Any]) -> str:
    unavailable = (
        f" without {len(data['unavailable'])} of {console.counted(data['shards'], 'shard')}"
    )
    return _store(data, "redis") + (unavailable if data["unavailable"] else "")


def _drain(data: dict[str, Any]) -> str:
    if data["drain_waiting"] is None:
        return "unknown"
    behind = data["drain_behind_s"]
    since = "has never run" if behind is None else "up to date"
    if behind:
        since = f"{_span(behind)} behind"
    waiting = f"{since}, {console.counted(data['drain_waiting'], 'counter')} waiting"
    versions = [f"version {drain['version']} on {drain['host']}" for drain in data["drains"]]
    return ", ".join([waiting, *versions])


def _audit(data: dict[str, Any]) -> str:
    found, age_s = data["audit_differences"], data["audit_age_s"]
    if found is None or age_s is None:
        return "none yet: the first is complete within two minutes of the drain's start"
    return (
        f"{console.counted(found, 'difference') if found else 'no difference'}, {_span(age_s)} ago"
    )


def _log(data: dict[str, Any]) -> str:
    waiting = f"{data['auction_log_bytes'] / 2**20:,.0f} MiB before the auction log's writer"
    lost = console.counted(data["auction_log_lost"], "row")
    return f"{waiting}, {lost} lost in the last minute"


def _now(data: dict[str, Any], now: dict[str, Any]) -> str:
    if not now:
        return "unknown"
    parts = [f"{now['requests']:,.1f} requests/s", f"{now['bids']:,.1f} bids/s"]
    whole = next((row for row in data["latency"] if row["step"] == "whole"), None)
    for share, seconds in zip(data["quantiles"], (whole or {}).get("seconds") or (), strict=False):
        if share in (0.5, 0.99):
            shown = "over the scale" if seconds is None else f"{seconds * 1000:.1f} ms"
            parts.append(f"p{share * 100:g} {shown}")
    return ", ".join([*parts, f"{data['errors']} answered 5xx in the last minute"])


def _today(data: dict[str, Any]) -> str:
    if data["spent_today"] is None:
        return "unknown"
    return (
        f"{data['bids_today']:,} bids, {data['wins_today']:,} wins, "
        f"{data['imps_today']:,} impressions, "
        f"{data['spent_today']:,.2f} USD (UTC day, all machines){_converted(data)}"
    )


def _converted(data: dict[str, Any]) -> str:
    """Describe the conversions from clicks; empty if there are none."""
    sums = data["converted_today"]
    if not sums or not sums["conversions"]:
        return ""
    return (
        f"; from clicks: {sums['registrations']:,} registrations, "
        f"{sums['first_deposits']:,} first deposits, {sums['net_deposits']:,.2f} USD net deposits"
    )


def _many(number: int | None, noun: str) -> str:
    return f"{noun}s unknown" if number is None else console.counted(number, noun)


def _span(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
