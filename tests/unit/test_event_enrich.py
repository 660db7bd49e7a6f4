"""Place, device and money of events, and the documents that are sent back."""

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from support.event_cases import NOW_MS, put, whole
from support.event_reading import PRESETS, read_batch

from snapbid.base.errors import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
    TooLarge,
    UnsupportedMediaType,
)
from snapbid.events import answers
from snapbid.events.answers import (
    CodedAnswer,
    EventsUnavailable,
    RateExceeded,
    UnknownApiKey,
)
from snapbid.events.attribution import Conversion, Counting
from snapbid.events.catalog import EVENTS
from snapbid.events.enrich import Enriched, Enricher, to_usd
from snapbid.events.fields import JSON_TYPES, Event, Kind
from snapbid.events.outcomes import BatchResult, Product, SingleResult
from snapbid.events.rulebook import RefusedRequest, findings_of
from snapbid.events.turns import Slices
from snapbid.events.validate import read_single
from snapbid.reference import agents, geo, history
from snapbid.warehouse.conversions import ConversionKey, ConversionSum

PRODUCT = Product("demo", frozenset(PRESETS))
MS = 1_716_400_000_000  # 2024-05-22, a working day
DAY = date(2024, 5, 22)
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/17.4 Mobile/15E148 Safari/604.1"
)
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
TABLE = """Date,USD,JPY,XAU,
2024-05-22,1.08,170.5,N/A,
2024-05-21,1.1,N/A,N/A,
2024-05-10,1.2,160,5,
"""


@pytest.fixture(scope="module")
def places() -> Iterator[geo.GeoDatabase]:
    database = geo.GeoDatabase()
    yield database
    database.close()


def rates(**operator: list[tuple[date, Decimal]]) -> history.DailyRates:
    return history.DailyRates(history.History(TABLE), operator)


def enriched(
    places: geo.GeoDatabase, context: dict[str, Any], quotes: history.DailyRates | None = None
) -> Enriched:
    event = {"event": "bet", "timestamp": MS, "identity": {}, "context": context}
    return Enricher(places.place, agents.details, quotes or rates()).enrich(event)


def test_absent_fields_are_null(places: geo.GeoDatabase) -> None:
    nothing = enriched(places, {})
    assert nothing == Enriched({"geo": None, "user_agent": None, "amounts": None}, [])


def test_place(places: geo.GeoDatabase) -> None:
    known = enriched(places, {"ip_address": "8.8.8.8"}).document["geo"]
    assert known == {"country": "US", "region": None, "city": None}
    for unknown in ("10.0.0.1", "192.168.1.10"):
        nowhere = enriched(places, {"ip_address": unknown}).document["geo"]
        assert nowhere == {"country": None, "region": None, "city": None}


@pytest.mark.parametrize(
    ("record", "region", "city"),
    [
        ({"country_code": "US", "state1": "Ohio", "city": "Dayton"}, "Ohio", "Dayton"),
        (
            {
                "country": {"iso_code": "US"},
                "subdivisions": [{"iso_code": "OH", "names": {"en": "Ohio"}}],
                "city": {"names": {"en": "Dayton", "de": "Dayton (Ohio)"}},
            },
            "Ohio",
            "Dayton",
        ),
        ({"subdivisions": [], "city": {}, "state1": ""}, None, None),
        ({"subdivisions": "Ohio", "city": 5}, None, None),
    ],
)
def test_place_in_other_databases(
    record: dict[str, Any], region: str | None, city: str | None
) -> None:
    assert (geo.region_of(record), geo.city_of(record)) == (region, city)


def test_user_agent(places: geo.GeoDatabase) -> None:
    assert enriched(places, {"user_agent": IPHONE}).document["user_agent"] == {
        "browser": "safari",
        "browser_version": "17.4",
        "os": "ios",
        "os_version": "17.4",
        "device": "iPhone",
        "is_bot": False,
    }
    bot = enriched(places, {"user_agent": GOOGLEBOT}).document["user_agent"]
    assert (bot["is_bot"], bot["device"], bot["browser"]) == (True, None, "other")
    assert enriched(places, {"user_agent": {"an": "object"}}).document["user_agent"] is None


def test_amounts(places: geo.GeoDatabase) -> None:
    context = {"amount": 12.5, "bet_result_amount": -3, "currency": "EUR"}
    amounts = enriched(places, context).document["amounts"]
    rest = {"currency": "EUR", "rate": 1.08, "rate_date": "2024-05-22"}
    assert amounts == {
        "amount": {"value": 12.5, "usd": 13.5, **rest},
        "bet_result_amount": {"value": -3, "usd": -3.24, **rest},
    }


def test_missing_rates_warn(places: geo.GeoDatabase) -> None:
    done = enriched(places, {"amount": 1, "currency": "VND"})
    assert done.document["amounts"]["amount"] == {
        "value": 1, "currency": "VND", "usd": None, "rate": None, "rate_date": None,
    }  # fmt: skip
    assert done.warnings == [("context.amount", "rate_missing")]


def test_crypto_symbols_are_not_currencies(places: geo.GeoDatabase) -> None:
    crypto = {"amount": 2, "currency": "JPY", "is_crypto": True}
    assert enriched(places, crypto).warnings == [("context.amount", "rate_missing")]
    quotes = rates(JPY=[(date(2024, 1, 1), Decimal("0.5"))])
    amount = enriched(places, crypto, quotes).document["amounts"]["amount"]
    assert (amount["usd"], amount["rate_date"]) == (1.0, "2024-01-01")


@pytest.mark.parametrize(
    ("currency", "day", "usd", "quoted"),
    [
        ("USD", date(1990, 1, 1), "1", date(1990, 1, 1)),
        ("EUR", DAY, "1.08", DAY),
        ("EUR", date(2030, 1, 1), "1.08", DAY),
        ("EUR", date(2024, 5, 20), "1.2", date(2024, 5, 10)),
        ("JPY", DAY, "216/34100", DAY),
        ("JPY", date(2024, 5, 21), None, None),
        ("XAU", date(2024, 5, 12), "0.24", date(2024, 5, 10)),
        ("XAU", DAY, None, None),
        ("EUR", date(2024, 5, 9), None, None),
        ("VND", DAY, None, None),
        ("Date", DAY, None, None),
    ],
)
def test_history(currency: str, day: date, usd: str | None, quoted: date | None) -> None:
    quote = history.History(TABLE).quote(currency, day)
    assert quote == (None if usd is None or quoted is None else (Fraction(usd), quoted))


def test_a_currency_is_dropped_after_a_week_without_a_quote() -> None:
    """A week to the day is not yet too long."""
    for newest, usd in ((date(2024, 5, 17), Fraction("1.2") / 160), (date(2024, 5, 18), None)):
        table = f"Date,USD,JPY\n{newest},1.1,N/A\n2024-05-10,1.2,160\n"
        quote = history.History(table).quote("JPY", newest)
        assert quote == (None if usd is None else (usd, date(2024, 5, 10)))


def test_operator_rates_take_precedence() -> None:
    quotes = rates(
        EUR=[(DAY, Decimal("3")), (date(2024, 5, 15), Decimal("2"))],
        VND=[(DAY, Decimal("0.00004"))],
    )
    quoted = {day: quotes.quote("EUR", date(2024, 5, day)) for day in (14, 15, 21, 22, 23)}
    assert {day: float(quote.usd) for day, quote in quoted.items() if quote} == {
        14: 1.2, 15: 2.0, 21: 2.0, 22: 3.0, 23: 3.0,
    }  # fmt: skip
    assert quotes.quote("VND", DAY) == (Fraction("0.00004"), DAY)
    assert quotes.quote("VND", date(2024, 5, 21)) is None
    with pytest.raises(ValueError, match="EUR: a rate must be above 0"):
        rates(EUR=[(DAY, Decimal(0))])


def test_bundled_table() -> None:
    shipped = history.load()
    assert shipped.quote("EUR", date(2024, 5, 22)) == (Fraction("1.083"), date(2024, 5, 22))
    easter = shipped.quote("GBP", date(2024, 4, 1))
    assert easter is not None
    assert easter.date == date(2024, 3, 28)
    assert shipped.quote("RUB", date(2023, 1, 1)) is None
    assert shipped.quote("HRK", date(2022, 6, 1)) is not None
    assert shipped.quote("EUR", date(1998, 12, 31)) is None


@pytest.mark.parametrize("text", ["", "Date,JPY,\n2024-05-22,1,\n", "Date,USD,\n", "a\nb"])
def test_another_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rates|isoformat|values"):
        history.History(text)


@pytest.mark.parametrize(
    ("value", "rate", "usd"),
    [
        (0.1, "1", 0.1),
        (1, "0.0000005", 0.0),
        (3, "0.0000005", 0.000002),
        (0.0000025, "1", 0.000002),
        (-0.0000015, "1", -0.000002),
        (1e15, "1", 1e15),
        (1e308, "3", None),
    ],
)
def test_rounding(value: float, rate: str, usd: float | None) -> None:
    assert to_usd(value, Fraction(rate)) == usd


def sent(answered: CodedAnswer) -> tuple[int, str, Any]:
    """Status, the code that is counted, and the document."""
    answer, code = answered
    return answer.start["status"], code, json.loads(answer.body)


def test_answers_of_a_single_event(places: geo.GeoDatabase) -> None:
    body = json.dumps(whole(EVENTS["bet"])).encode()
    single = read_single(body, PRODUCT, NOW_MS, test=True)
    assert isinstance(single, SingleResult)
    accepted = {"status": "accepted", "eventId": single.event.event_id}
    assert sent(answers.accepted(single.event)) == (202, "accepted", accepted)
    enricher = Enricher(places.place, agents.details, rates())
    found = answers.enrich(single.event, enricher)
    status, code, echoed = sent(answers.tested(single, found, Counting()))
    assert (status, code) == (200, "valid")
    assert list(echoed) == ["status", "event", "warnings"]
    assert list(echoed["event"]) == ["event", "timestamp", "identity", "context", "enrichment"]


@pytest.mark.parametrize(("unvalued", "usd"), [(0, 2.5), (1, None)])
def test_a_conversion_without_a_value_is_worth_null(
    places: geo.GeoDatabase, unvalued: int, usd: float | None
) -> None:
    single = read_single(json.dumps(whole(EVENTS["deposit"])).encode(), PRODUCT, NOW_MS, test=True)
    assert isinstance(single, SingleResult)
    found = answers.enrich(single.event, Enricher(places.place, agents.details, rates()))
    key = ConversionKey(DAY, "spring", "banner", "acme", "deposit")
    counting = Counting("", Conversion(key, ConversionSum(1, 2_500_000, 0, unvalued)))
    _, _, echoed = sent(answers.tested(single, found, counting))
    assert echoed["conversion"]["value_usd"] == usd


def test_answers_of_a_refusal() -> None:
    refusal = read_single(b'{"event":"bet","timestamp":1}', PRODUCT, NOW_MS)
    assert isinstance(refusal, RefusedRequest)
    assert refusal.status == 400
    status, code, answer = sent(answers.refused(refusal))
    assert (status, code) == (400, answer["code"]) == (400, "VALIDATION_ERROR")
    assert list(answer) == ["code", "message", "violations"]
    wrong = {"field": "timestamp", "rule": "not_milliseconds", "event": "bet"}
    assert answer["violations"][0] == wrong
    batch = read_batch(b'[{"event":"x"}]', PRODUCT, NOW_MS)
    assert isinstance(batch, RefusedRequest)
    status, code, answer = sent(answers.refused(batch))
    assert (status, code) == (400, "VALIDATION_ERROR")
    assert answer["violations"][0] == {
        "field": "[0].event",
        "rule": "unknown_event",
        "event": None,
        "index": 0,
    }


def test_messages_are_sentences() -> None:
    for body, message in (
        (b"[]", "body must be a JSON object"),
        (b"{", "body cannot be read as JSON: it has a syntax error at byte 1"),
        (b'{"event":"login"}', "timestamp is required, and 2 more violations"),
        (b'{"event":"no"}', "event is not an event of the catalog, and 2 more violations"),
    ):
        refusal = read_single(body, PRODUCT, NOW_MS)
        assert isinstance(refusal, RefusedRequest)
        assert refusal.message == message


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)
def test_messages_say_what_a_field_must_be(event: Event) -> None:
    """Its JSON type, and the values of a choice, whichever field of whichever event it is."""
    types = {"string": "a string", "number": "a number", "boolean": "true or false"}
    wrong: list[tuple[str, Any, str]] = [
        (field.path, [], f"must be {types[JSON_TYPES[field.kind]]}")
        for field in (*event.identity_fields(), *event.context_fields())
    ]
    wrong += [
        (field.path, "no such value", f"must be one of {', '.join(field.values)}")
        for field in event.fields
        if field.kind is Kind.CHOICE
    ]
    wrong += [
        (field.path, -1, "must be at least 0")
        for field in event.fields
        if field.kind is Kind.NUMBER and not field.signed
    ]
    wrong += [("timestamp", "1", "must be a number"), ("context", [], "must be an object")]
    wrong += [("identity", 1, "must be an object"), ("context.privacy", 1, "must be an object")]
    for path, value, must in wrong:
        envelope = changed(whole(event), path, value)
        single = read_single(json.dumps(envelope).encode(), PRODUCT, NOW_MS)
        batch = read_batch(json.dumps([envelope]).encode(), PRODUCT, NOW_MS)
        assert isinstance(single, RefusedRequest)
        assert isinstance(batch, RefusedRequest)
        assert single.message == f"{path} {must}"
        assert batch.message == f"[0].{path} {must}"


@pytest.mark.parametrize("path", ["event", "context.other_hash", "context.privacy.other_hash"])
def test_messages_name_the_type_of_unknown_events(path: str) -> None:
    envelope = changed(whole(EVENTS["login"]), path, 5)
    refusal = read_single(json.dumps(envelope).encode(), PRODUCT, NOW_MS)
    assert isinstance(refusal, RefusedRequest)
    assert refusal.message == f"{path} must be a string"


def changed(envelope: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    put(envelope, path, value)
    return envelope


async def test_answers_of_a_batch(places: geo.GeoDatabase) -> None:
    body = f"[{json.dumps(whole(EVENTS['login']))},5]".encode()
    batch = read_batch(body, PRODUCT, NOW_MS, lenient=True)
    assert isinstance(batch, BatchResult)
    failed = [
        {
            "index": 1,
            "code": "VALIDATION_ERROR",
            "event": None,
            "violations": [{"field": "[1]", "rule": "not_object", "event": None, "index": 1}],
        }
    ]
    lenient = answers.accepted_batch(batch, "r", lenient=True)
    assert sent(lenient) == (202, "accepted", {
        "status": "accepted", "requestId": "r", "count": 1, "rejected": 1, "errors": failed,
    })  # fmt: skip
    assert (b"preference-applied", b"handling=lenient") in lenient[0].start["headers"]
    good = {"status": "accepted", "requestId": "r", "count": 1}
    strict = answers.accepted_batch(batch, "r", lenient=False)
    assert sent(strict) == (202, "accepted", good)
    assert not [name for name, _ in strict[0].start["headers"] if name == b"preference-applied"]
    enricher = Enricher(places.place, agents.details, rates())
    found = await Slices().run(answers.enrich_batch(batch, enricher))
    assert sent(answers.tested_batch(batch, found, [Counting()])) == (200, "valid", {
        "status": "invalid", "successCount": 1, "failureCount": 1, "errors": failed, "warnings": [],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (UnknownApiKey(), 401, "UNAUTHORIZED"),
        (NotFound("there is nothing at this path"), 404, "NOT_FOUND"),
        (MethodNotAllowed("POST"), 405, "METHOD_NOT_ALLOWED"),
        (TooLarge("the body is over 1 bytes"), 413, "PAYLOAD_TOO_LARGE"),
        (UnsupportedMediaType("Content-Type: must be application/json"), 415,
         "UNSUPPORTED_MEDIA_TYPE"),
        (BadRequest("the body is not gzip"), 400, "VALIDATION_ERROR"),
        (EventsUnavailable(), 503, "UNAVAILABLE"),
        (Problem("the request could not be served"), 500, "INTERNAL_ERROR"),
    ],
    ids=str,
)  # fmt: skip
def test_a_problem_is_counted_under_the_code_in_its_body(
    problem: Problem, status: int, code: str
) -> None:
    sent_status, counted, document = sent(answers.failed(problem))
    assert (sent_status, counted, document["code"]) == (status, code, code)
    assert list(document) == ["code", "message", "violations"]


def test_a_429_has_no_code_in_its_body() -> None:
    status, counted, document = sent(answers.failed(RateExceeded(10, "events", 7)))
    assert (status, counted, list(document)) == (429, "RATE_EXCEEDED", ["error"])


def test_enrichment_warnings_in_answers() -> None:
    findings = findings_of("bet", [("context.amount", "rate_missing")], 3)
    assert json.loads(msgspec.json.encode(findings)) == [
        {"field": "[3].context.amount", "rule": "rate_missing", "event": "bet", "index": 3}
    ]
