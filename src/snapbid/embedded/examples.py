"""The copy-and-paste examples printed by `snapbid up`: a bid, its notices, the report, events."""

import json
import time

AUCTION = "connectivity-test"


def text(address: str, ssp: str, token: str, snapbid: str) -> str:
    """Return shell commands for the server at `address`.

    `token`: a report token of `ssp`; `snapbid`: the command line of this instance's `snapbid`.
    """
    # A new auction id each time, or repeating the examples would not raise the report's counts.
    auction = f"{AUCTION}-{int(time.time())}"
    request = {
        "id": auction,
        "at": 1,
        "imp": [{"id": "1", "banner": {"w": 300, "h": 250}, "bidfloor": 0}],
        "site": {"domain": "example.com", "page": "https://example.com/"},
        "device": {"ua": "Mozilla/5.0", "ip": "192.0.2.1", "geo": {"country": "USA"}},
    }
    event = {
        "event": "register",
        "timestamp": time.time_ns() // 1_000_000,
        "identity": {"client_user_id": "user-1"},
        "context": {"ip_address": "192.0.2.1", "user_agent": "Mozilla/5.0"},
    }
    return f"""A bid (document 2, connectivity test), its win and its billing notice:

  curl -i '{address}/api/v1/openrtb2/{ssp}/bid' \\
    -H 'Content-Type: application/json' \\
    -d '{json.dumps(request)}'
  curl -s '{address}/rtb/win?id={auction}&impId=1' -o /dev/null -w '%{{http_code}}\\n'
  curl -s '{address}/rtb/bill?id={auction}&impId=1' -o /dev/null -w '%{{http_code}}\\n'

Today's report (document 1), a few seconds later:

  TODAY=$(date -u +%F)
  curl -i "{address}/api/v1/ssp/{ssp}/report?from=$TODAY&to=$TODAY" \\
    -H 'Authorization: Bearer {token}'

A server event (document 3): a key, a test that stores nothing, and the event itself:

  KEY=$({snapbid} key issue demo-shop); sleep 2
  curl -i '{address}/v3/s2s/event' -H "X-API-KEY: $KEY" \\
    -H 'Content-Type: application/json' -H 'X-Test-Mode: true' \\
    -d '{json.dumps(event)}'
  curl -i '{address}/v3/s2s/event' -H "X-API-KEY: $KEY" \\
    -H 'Content-Type: application/json' \\
    -d '{json.dumps(event)}'
"""
