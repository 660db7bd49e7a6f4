"""What the fields of answers mean, where the code that makes them has no place to say it."""

from typing import Any, Final

Schema = dict[str, Any]

_FINDING: Final = {
    "field": "Path of the field in the envelope.",
    "event": "The event's name, where it is in the catalog.",
    "index": "The event's position in a batch.",
}

NOTES: Final[dict[str, dict[str, str]]] = {
    "Report": {"currency": "Of all money."},
    "Diagnosis": {
        "ssp": "The canonical SSP id.",
        "from": "Where the window begins, UTC.",
        "to": "Where the window ends, UTC.",
        "requests": "Bid requests, tests left out.",
        "tests": "Bid requests with `test: 1`.",
        "bids": "Bid responses with status 200.",
        "lateShare": "Share of the answers that came too late, 0 to 1.",
        "notices": "By kind: `win`, `billing`, `loss`.",
        "winsWithoutBilling": "Wins that no billing notice followed.",
        "lossesWithoutReason": "Losses whose `nbr` is no code: its macro was left in place, say.",
        "lostAndWon": "Bids with a loss notice beside a win or billing notice.",
        "reusedAuctions": "Auction ids that were sent more than once.",
    },
    "RuleShare": {
        "rule": "What stood last between such a request and the campaigns.",
        "requests": "How many of all without a campaign, as the sample has it.",
        "sampled": "How many requests of the sample were so.",
        "meaning": "In words.",
    },
    "OutcomeShare": {
        "code": "Reason or error code.",
        "requests": "How many requests ended so.",
        "meaning": "In words.",
    },
    "FieldFault": {
        "field": "Name of the field; empty for the whole body.",
        "rule": "What is wrong with it.",
        "requests": "How many requests lack or break it.",
        "example": "Its path in one of them, without values.",
    },
    "NoticeCounts": {
        "counted": "Notices that count, late ones included.",
        "duplicate": "Repeats, which count nothing.",
        "unknown": "For a bid that is no longer remembered.",
        "late": "Counted on another day than their bid's.",
        "altered": "Their URL was not the bid's, and was put right.",
    },
    "DiagnosisDay": {
        "date": "UTC.",
        "requests": "Bid requests, tests left out.",
        "bids": "Bid responses with status 200.",
        "late": "Answers that came too late.",
        "wins": "Win notices that count.",
        "billed": "Billing notices that count.",
    },
    "Item": {
        "number": "As document 2 numbers them.",
        "title": "What is asked for.",
        "state": "Whether it is met, by what is known.",
        "evidence": "What it is judged from.",
        "fix": "What to do; empty if there is nothing.",
    },
    "DemandRules": {
        "ssp": "The canonical SSP id.",
        "validForS": "Seconds for which the rules hold, from when they were read.",
        "currencies": "USD of a unit of each currency that can be bid in.",
    },
    "Accepted": {
        "media": "`banner`, `video`, `audio` or `native`.",
        "sizes": "`300x250`; empty: any.",
        "inventories": "`site`, `app`, `dooh`; empty: any.",
        "countries": "ISO 3166-1; empty: any.",
        "deviceTypes": "As `device.devicetype`; empty: any.",
        "deals": "One of them must be on offer; empty: none is needed.",
        "maxFloor": "The highest `bidfloor`, in USD; null: any.",
    },
    "Finding": _FINDING,
    "Warning": _FINDING,
    "Failed": {
        "index": "The event's position in the batch.",
        "code": "As if it had been sent alone.",
        "event": "The event's name, where it is in the catalog.",
    },
    "EventError": {"code": "A short code for programs.", "message": "For people."},
    "RateError": {"error": "For people."},
    "EventAccepted": {"status": "Always `accepted`."},
    "BatchAccepted": {
        "status": "Always `accepted`.",
        "requestId": "The batch's id, to quote in questions about it.",
    },
    "Enrichment": {
        "geo": "Where the address is; null if unknown.",
        "geo.country": "ISO 3166-1 alpha-2.",
        "geo.region": "Code of the region.",
        "geo.city": "Name of the city.",
        "user_agent": "What the user agent says; null if there is none.",
        "user_agent.browser": "Name of the browser.",
        "user_agent.browser_version": "Its version.",
        "user_agent.os": "Name of the operating system.",
        "user_agent.os_version": "Its version.",
        "user_agent.device": "Kind of the device.",
        "user_agent.is_bot": "Whether it says that it is a program.",
        "amounts": "By field: the amount in USD at the rate of the event's day.",
    },
    "EnrichedEvent": {
        "event": "The event's name.",
        "identity": "As it was sent, normalised.",
        "context": "As it was sent, normalised.",
    },
    "EventTested": {"status": "Always `valid`."},
    "BatchTested": {
        "status": "`valid` if all events are.",
        "successCount": "Events that are valid.",
        "failureCount": "Events that are not.",
    },
}
"""Schema -> path of a field -> its description."""


def described(schemas: dict[str, Schema]) -> dict[str, Schema]:
    """The schemas with these notes; what has a description of its own keeps it."""
    for name, notes in NOTES.items():
        for path, note in notes.items():
            *outer, leaf = path.split(".")
            schema = schemas[name]
            for field in outer:
                schema = schema["properties"][field]
            schema["properties"][leaf] = {"description": note, **schema["properties"][leaf]}
    return schemas
