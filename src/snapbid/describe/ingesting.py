"""Server events (document 3; contract 7): both endpoints and what they answer."""

from functools import partial
from typing import Any, Final

import msgspec

from snapbid.describe.openapi import (
    REF,
    TRY,
    Example,
    Fragment,
    Schema,
    body,
    failures,
    headers,
    objects,
    optional,
    parameter,
    ref,
)
from snapbid.errors import (
    BadRequest,
    BodyTimeout,
    MethodNotAllowed,
    Problem,
    TooLarge,
    UnsupportedMediaType,
)
from snapbid.events import answers
from snapbid.events.answers import EventsUnavailable, RateExceeded, UnknownApiKey
from snapbid.events.endpoint import MAX_BYTES
from snapbid.events.fields import CORE
from snapbid.events.outcomes import Product
from snapbid.events.routes import BATCH_PATH, SINGLE_PATH
from snapbid.events.rulebook import (
    BATCH_TOO_LARGE,
    MAX_EVENTS,
    RULES,
    STATUSES,
    WARNINGS,
    RefusedRequest,
    RejectedEvent,
)
from snapbid.events.validate import read_batch, read_single
from snapbid.http import Answer
from snapbid.reference.agents import Agent
from snapbid.warehouse.products import EVENTS as EVENTS_A_MINUTE
from snapbid.warehouse.products import RATE

_TEXT: Final[Schema] = {"type": "string"}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
_MAYBE_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": MAX_EVENTS}
WHEN_MS: Final = 1_750_000_000_000


def _list(name: str) -> Schema:
    return {"type": "array", "items": ref(name)}


def schemas() -> dict[str, Schema]:
    """Answers and errors."""
    _, components = msgspec.json.schema_components([RejectedEvent], ref_template=REF)
    finding = components["FieldFinding"] | {"title": "Finding"}
    failed = components["RejectedEvent"] | {"title": "Failed"}
    failed["properties"]["violations"] = _list("Finding")
    warning = finding | {"title": "Warning", "properties": dict(finding["properties"])}
    for schema, rules, what in (
        (finding, RULES, "A broken rule."),
        (warning, WARNINGS, "Accepted, but worth a look. Only in test mode."),
    ):
        schema["description"] = (
            f"{what} In a batch `index` is the event's position, and `field` starts with it: "
            "`[3].context.amount`."
        )
        schema["properties"]["rule"] = {
            "enum": [*rules],
            "description": "; ".join(f"`{rule}`: {text}" for rule, text in rules.items()),
        }
    failed["properties"]["code"] = {"enum": sorted(STATUSES.keys() - {BATCH_TOO_LARGE})}
    return {"Finding": finding, "Warning": warning, "Failed": failed, **_answers(), **_test_mode()}


def _answers() -> dict[str, Schema]:
    accepted = {"const": "accepted"}
    error = objects(
        {"code": _TEXT, "message": _TEXT, "violations": _list("Finding")},
        title="EventError",
        description="The violations of a request, all at once. Quotes no value.",
    )
    event_id = {
        "type": "string",
        "pattern": "^ev1-[0-9a-f]{32}$",
        "description": "The same for the same event, however often it is sent.",
    }
    batch = {
        "status": accepted,
        "requestId": _TEXT,
        "count": _COUNT | {"description": "Events that were accepted."},
        "rejected": _COUNT | {"description": "With lenient handling: events that were not."},
        "errors": _list("Failed"),
    }
    return {
        "EventError": error,
        "RateError": objects({"error": _TEXT}, title="RateError", additionalProperties=False),
        "EventAccepted": objects(
            {"status": accepted, "eventId": event_id},
            title="EventAccepted",
            additionalProperties=False,
        ),
        "BatchAccepted": objects(
            batch, "rejected", "errors", title="BatchAccepted", additionalProperties=False
        ),
    }


def _test_mode() -> dict[str, Schema]:
    agent = dict.fromkeys(Agent._fields, _MAYBE_TEXT) | {"is_bot": {"type": "boolean"}}
    amount = objects(
        {
            "value": {"type": "number"},
            "currency": _MAYBE_TEXT,
            "usd": _MAYBE_NUMBER,
            "rate": _MAYBE_NUMBER,
            "rate_date": _MAYBE_TEXT,
        }
    )
    enrichment = objects(
        {
            "geo": optional(objects(dict.fromkeys(("country", "region", "city"), _MAYBE_TEXT))),
            "user_agent": optional(objects(agent)),
            "amounts": {"type": ["object", "null"], "additionalProperties": amount},
        },
        title="Enrichment",
        description="Place of the address, browser and system of the user agent, amounts in USD "
        "at the rate of the event's day; null where there is no source.",
    )
    echoed = objects(
        {
            "event": _TEXT,
            "timestamp": ref("Timestamp"),
            "identity": {"type": "object"},
            "context": {"type": "object"},
            "enrichment": ref("Enrichment"),
        },
        title="EnrichedEvent",
        description="The event as it would be stored.",
    )
    tested = {
        "status": {"const": "valid"},
        "event": ref("EnrichedEvent"),
        "warnings": _list("Warning"),
    }
    batch = {
        "status": {"enum": ["valid", "invalid"]},
        "successCount": _COUNT,
        "failureCount": _COUNT,
        "errors": _list("Failed"),
        "warnings": _list("Warning"),
    }
    return {
        "Enrichment": enrichment,
        "EnrichedEvent": echoed,
        "EventTested": objects(tested, title="EventTested", additionalProperties=False),
        "BatchTested": objects(batch, title="BatchTested", additionalProperties=False),
    }


def _envelope(event: str, user: str = "user-1", **context: Any) -> dict[str, Any]:
    return {
        "event": event,
        "timestamp": WHEN_MS,
        "identity": {"client_user_id": user},
        "context": {"ip_address": "192.0.2.1", **context},
    }


REGISTER: Final = _envelope("register", user_agent="Mozilla/5.0")
DEPOSIT: Final = _envelope("deposit", transaction_id="tx-1", amount=20, currency="EUR")
LOGIN: Final = _envelope("login", user_agent="Mozilla/5.0")
WRONG: Final = _envelope("login", user="", user_agent="Mozilla/5.0")
UNKNOWN: Final = _envelope("signup")
ACCEPTED: Final = {"status": "accepted", "eventId": "ev1-0123456789abcdef0123456789abcdef"}
BATCH_ID: Final = "req-0123456789abcdef0123456789abcdef"
_SHOP: Final = Product("shop", frozenset({CORE}))
_ECHOED: Final = {
    "status": "valid",
    "event": LOGIN
    | {
        "enrichment": {
            "geo": {"country": None, "region": None, "city": None},
            "user_agent": {
                "browser": "other",
                "browser_version": None,
                "os": "other",
                "os_version": None,
                "device": None,
                "is_bot": False,
            },
            "amounts": None,
        }
    },
    "warnings": [{"field": "identity.click_id", "rule": "suggested_missing", "event": "login"}],
}  # fmt: skip


def _post(target: str, name: str, summary: str, status: int, **more: Any) -> Example:
    sent = {"X-API-KEY": "$KEY", "Content-Type": "application/json"} | more.pop("headers", {})
    kept = {name: value for name, value in sent.items() if value is not None}
    return Example(
        name=name,
        summary=summary,
        method="POST",
        target=target,
        status=status,
        headers=kept,
        **more,
    )


def single_examples() -> list[Example]:
    """`$KEY` is a key of a product with both presets, `$SHOP_KEY` of one without `igaming`."""
    post = partial(_post, SINGLE_PATH)
    return [
        post("accepted", "An account is created", 202, body=REGISTER, answer=ACCEPTED),
        post("deposit", "Money comes in", 202, body=DEPOSIT),
        post("test", "Test mode: validated, not stored", 200, body=LOGIN,
             headers={"X-Test-Mode": "true"}, answer=_ECHOED),
        post("invalid", "An empty user id", 400, body=WRONG, code="VALIDATION_ERROR"),
        post("no_key", "Without a key", 401, body=REGISTER, headers={"X-API-KEY": None},
             code="UNAUTHORIZED"),
        post("media_type", "Not sent as JSON", 415, body=REGISTER,
             headers={"Content-Type": "text/plain"}, code="UNSUPPORTED_MEDIA_TYPE"),
        post("unknown_event", "Not an event of the catalog", 422, body=UNKNOWN,
             code="UNKNOWN_EVENT_TYPE"),
        post("disabled_event", "Without the preset `igaming`", 422, body=DEPOSIT,
             headers={"X-API-KEY": "$SHOP_KEY"}, code="EVENT_DISABLED"),
    ]  # fmt: skip


def batch_examples() -> list[Example]:
    """Keys as in `single_examples`."""
    post = partial(_post, BATCH_PATH)
    accepted: dict[str, Any] = {"status": "accepted", "requestId": BATCH_ID}
    wrong = {"field": "[1].identity.client_user_id", "rule": "empty", "event": "login", "index": 1}
    failed = {"index": 1, "code": "VALIDATION_ERROR", "event": "login", "violations": [wrong]}
    tested = {"status": "invalid", "successCount": 1, "failureCount": 1, "errors": [failed]}
    click = "identity.click_id"
    warnings = [
        {**wrong, "field": f"[{index}].{click}", "rule": "suggested_missing", "index": index}
        for index in range(2)
    ]
    return [
        post("accepted", "Two events", 202, body=[REGISTER, DEPOSIT],
             answer=accepted | {"count": 2}),
        post("lenient", "The valid one of two", 202, body=[REGISTER, WRONG],
             headers={"Prefer": "handling=lenient"},
             answer=accepted | {"count": 1, "rejected": 1, "errors": [failed]}),
        post("test", "Test mode: validated, not stored", 200, body=[LOGIN, WRONG],
             headers={"X-Test-Mode": "true"}, answer=tested | {"warnings": warnings}),
        post("invalid", "All or nothing", 400, body=[REGISTER, WRONG],
             code="VALIDATION_ERROR"),
        post("too_many", f"{MAX_EVENTS + 1} events", 400,
             body=[REGISTER] * (MAX_EVENTS + 1), code="BATCH_TOO_LARGE"),
        post("unknown_event", "Not an event of the catalog", 422, body=[UNKNOWN],
             code="UNKNOWN_EVENT_TYPE"),
        post("disabled_event", "Without the preset `igaming`", 422, body=[DEPOSIT],
             headers={"X-API-KEY": "$SHOP_KEY"}, code="EVENT_DISABLED"),
    ]  # fmt: skip


_RULES: Final = (
    "Sending an event again is safe: it has the same `eventId` and is stored once. On 429 and 5xx "
    "retry with exponential backoff.\n\nErrors are checked in this order: 405, 401, 429, 415, "
    "413, 400, 422. In test mode (`X-Test-Mode: true`) nothing is stored, and the answer shows "
    "what would be. A string may not contain U+0000 or half a surrogate pair."
)


def single(examples: list[Example]) -> Fragment:
    """The operation that takes one event."""
    description = "The body is one envelope. A 202 means that it is stored durably.\n\n" + _RULES
    answered = {
        "200": _answered("Test mode: the event as it would be stored, enriched.", "EventTested",
                         examples, 200),
        "202": _answered("The event is accepted.", "EventAccepted", examples, 202),
    }  # fmt: skip
    named = ("ingestEvent", "Send one event", description)
    return _operation(named, ref("Event"), examples, answered, batch=False)


def batch(examples: list[Example]) -> Fragment:
    """The operation that takes several."""
    description = (
        f"The body is an array of 1 to {MAX_EVENTS} envelopes: all are accepted, or none. With "
        "`Prefer: handling=lenient` the valid ones are accepted and the others listed.\n\n" + _RULES
    )
    many = {"type": "array", "minItems": 1, "maxItems": MAX_EVENTS, "items": ref("Event")}
    kept = _answered("The events are accepted.", "BatchAccepted", examples, 202)
    answered = {
        "200": _answered("Test mode: every violation, even if all events are invalid.",
                         "BatchTested", examples, 200),
        "202": kept | {"headers": headers("preference-applied")},
    }  # fmt: skip
    named = ("ingestBatch", "Send several events", description)
    operation = _operation(named, many, examples, answered, batch=True)
    operation["parameters"].append(
        parameter("Prefer", "header", {"type": "string"},
                  "`handling=lenient`: accept the valid events. Ignored in test mode.")
    )  # fmt: skip
    return operation


def _answered(description: str, schema: str, examples: list[Example], status: int) -> Fragment:
    shown = [example for example in examples if example.status == status]
    return {"description": description, "content": body(ref(schema), shown, answers=True)}


def _operation(
    named: tuple[str, str, str],
    sent: Schema,
    examples: list[Example],
    answered: Fragment,
    *,
    batch: bool,
) -> Fragment:
    shown = [
        example
        for example in examples
        if example.status == 202 or (example.status == 200 and not batch)
        if "Prefer" not in example.headers
    ]
    operation_id, summary, description = named
    return {
        "operationId": operation_id,
        TRY: {"example": "test", "note": "Sent in test mode: validated, and not stored."},
        "tags": ["Server events"],
        "summary": summary,
        "description": description,
        "security": [{"apiKey": []}],
        "parameters": [
            parameter("X-Test-Mode", "header",
                      {"type": "string", "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|)$"},
                      "`true`: validate, enrich and echo, store nothing."),
            parameter("Content-Encoding", "header", {"enum": ["gzip", "zstd", "identity"]},
                      "`gzip` or `zstd` where the body is compressed."),
        ],
        "requestBody": {"required": True, "content": body(sent, shown)},
        "responses": answered | _failures(batch=batch),
    }  # fmt: skip


def _failures(*, batch: bool) -> Fragment:
    def read(document: Any) -> Answer:
        text = msgspec.json.encode([document] if batch else document)
        refusal = (read_batch if batch else read_single)(text, _SHOP, WHEN_MS)
        assert isinstance(refusal, RefusedRequest)
        return answers.refused(refusal)[0]

    wrong = _failed(BadRequest("the gzip body was cut short"))
    given = [
        ("A field is missing or wrong, or the header `X-Test-Mode` is", read(WRONG)),
        ("The body is not JSON, not what its encoding says, or cut short", wrong),
        *([(f"More than {MAX_EVENTS} events", _too_many())] if batch else []),
        ("The key is missing or unknown", _failed(UnknownApiKey())),
        ("Any other method", _failed(MethodNotAllowed("POST"))),
        ("The body has not come in time; the connection is closed", _failed(BodyTimeout())),
        (f"The body is over {MAX_BYTES >> 20} MiB, decompressed",
         _failed(TooLarge(f"the body is over {MAX_BYTES} bytes"))),
        ("The type is not `application/json`, or the encoding neither gzip nor zstd",
         _failed(UnsupportedMediaType("Content-Type: must be application/json"))),
        ("`event` is not in the catalog", read(UNKNOWN)),
        ("The event's preset is not enabled for the product", read(DEPOSIT)),
        ("Internal error; send it again", _failed(Problem("the request could not be "
                                                                    "served"))),
        ("Events cannot be accepted now; send them again", _failed(EventsUnavailable())),
    ]  # fmt: skip
    limited = {
        f"The key's requests in any minute are used up ({RATE} unless agreed otherwise), or its "
        f"events ({EVENTS_A_MINUTE})":
        _failed(RateExceeded(RATE, "requests", 12)),
    }  # fmt: skip
    responses = failures(ref("EventError"), "code", given)
    responses |= failures(ref("RateError"), "error", limited.items())
    answer = responses["429"]["content"]["application/json"]
    answer["schema"] = ref("RateError")
    answer["examples"] = {"rate": next(iter(answer["examples"].values()))}
    return dict(sorted(responses.items()))


def _failed(problem: Problem) -> Answer:
    answer, _ = answers.failed(problem)
    return answer


def _too_many() -> Answer:
    refusal = read_batch(b"[%b]" % b",".join([b"0"] * (MAX_EVENTS + 1)), _SHOP, WHEN_MS)
    assert isinstance(refusal, RefusedRequest)
    return answers.refused(refusal)[0]
