"""Server events as a gaming partner sends them: a seeded mix of all 25 types, as JSON."""

import hashlib
import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from snapbid.loadtest.pools import Pool

_AGENTS: Final = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/17.4 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
)
_GAMES: Final = ("slot", "live", "sportsbook", "roulette", "poker", "aviator", "table_games")
_CURRENCIES: Final = ("EUR", "EUR", "USD", "BRL", "TRY", "INR", "eur")
Context = dict[str, Any]


class EventRandom(Random):
    """The source of randomness, with the current time in epoch ms."""

    now_ms = 0


def _money(random: EventRandom, currency: str = "") -> Context:
    if random.random() < 0.1:
        return {"currency": "USDT", "is_crypto": True}
    return {"currency": currency or random.choice(_CURRENCIES), "is_crypto": False}


def _amount(random: EventRandom) -> float:
    return round(random.uniform(0.1, 500), 2)


def _id(random: EventRandom, prefix: str) -> str:
    return f"{prefix}-{random.getrandbits(64):016x}"


def _hash(random: EventRandom) -> str:
    return hashlib.sha256(random.randbytes(8)).hexdigest()


def _minutes(random: EventRandom, name: str) -> Context:
    return {name: random.randrange(1, 4000)}


def _bet(random: EventRandom) -> Context:
    stake = _amount(random)
    won = random.random() < 0.4
    return {
        "transaction_id": _id(random, "bet"),
        "game_type": random.choice(_GAMES),
        "game_provider": "Acme Games",
        "game_name": "Book of Numbers",
        "amount": stake,
        "cash_bet_amount": stake,
        "bonus_bet_amount": 0,
        "bet_result": "win" if won else "loss",
        "bet_result_amount": _amount(random) if won else -stake,
        "is_live": False,
        "is_free": False,
        **_money(random),
    }


def _deposit(random: EventRandom) -> Context:
    return {
        "transaction_id": _id(random, "pay"),
        "amount": _amount(random),
        "payment_method": "card",
        **_money(random),
    }


def _failed(random: EventRandom) -> Context:
    context = _deposit(random)
    context["attempted_amount"] = context.pop("amount")
    return context | {"failure_reason": "declined_by_issuer"}


def _withdraw(random: EventRandom) -> Context:
    context = _deposit(random)
    del context["payment_method"]
    return context


def _session(random: EventRandom) -> Context:
    return {
        "session_id": _id(random, "session"),
        "session_start_at": random.now_ms - random.randrange(10**7),
        "duration_minutes": round(random.uniform(1, 300), 1),
        "total_wagered": _amount(random),
        "total_won": _amount(random),
        "bet_count": random.randrange(1, 400),
        "end_reason": "user_logout",
        **_money(random),
    }


def _bonus(**fields: Callable[[EventRandom], Any]) -> Callable[[EventRandom], Context]:
    def context(random: EventRandom) -> Context:
        values = {name: value(random) for name, value in fields.items()}
        return {"bonus_id": _id(random, "bonus"), **values, **_money(random)}

    return context


def _count(random: EventRandom) -> int:
    return random.randrange(1, 5000)


def _register(random: EventRandom) -> Context:
    return {
        "user_agent": random.choice(_AGENTS),
        "privacy": {
            "email_hash": _hash(random),
            "phone_hash": _hash(random),
            "marketing_consent": True,
        },
        "attribution": {
            "install_source": "search",
            "utm_source": "newsletter",
            "utm_medium": "email",
            "utm_campaign": "spring",
            "utm_content": "button",
            "utm_term": "offer",
        },
        "phone_country_code": "+44",
        "consent_timestamp": random.now_ms - random.randrange(10**7),
    }


def _app(**fields: Any) -> Callable[[EventRandom], Context]:
    return lambda random: {
        "platform": random.choice(("ios", "android")),
        "app_version": "4.12.0",
        **fields,
    }


def _fixed(**fields: Any) -> Callable[[EventRandom], Context]:
    return lambda random: dict(fields)


_KYC: Final = {"kyc_level": "enhanced", "jurisdiction": "MT", "verification_method": "video"}
_CONSENTS: Final = {f"allow_{name}": True for name in ("email", "sms", "push", "chat_app")}
_EVENTS: Final[dict[str, tuple[int, Callable[[EventRandom], Context]]]] = {  # name: weight, context
    "register": (3, _register),
    "referral_register": (1, _fixed(referral_client_user_id="user-000001")),
    "login": (8, lambda random: {"user_agent": random.choice(_AGENTS)}),
    "email_verified": (2, lambda random: {"email_hash": _hash(random),
                                          "verification_method": "link"}),
    "phone_verified": (1, lambda random: {"phone_hash": _hash(random), "phone_country_code": "55",
                                          "verification_method": "sms_otp"}),
    "marketing_consent_updated": (1, _fixed(**_CONSENTS, update_source="signup")),
    "app_install": (2, _app(attribution={"install_source": "ads"}, device_id="device-1",
                            store="google_play", campaign_id="c-17", is_reattribution=False)),
    "app_open": (6, _app(session_id="s-1", is_first_open=False)),
    "app_uninstall": (1, _app(days_since_install=12)),
    "push_permission_updated": (1, _fixed(platform="ios", permission_status="granted",
                                          push_enabled=True, update_source="settings")),
    "session_ended": (5, _session),
    "vip_tier_changed": (1, _fixed(new_tier="gold", previous_tier="silver", direction="upgrade",
                                   trigger="loyalty_points")),
    "kyc_completed": (1, lambda random: _KYC | _minutes(random, "time_to_complete_minutes")),
    "kyc_rejected": (1, lambda random: _KYC | {"rejection_reason": "underage"}),
    "account_blocked": (1, _fixed(block_reason="fraud", block_duration="under_review")),
    "account_unblocked": (1, _fixed(unblock_reason="review_passed")),
    "deposit_initiated": (8, _deposit),
    "deposit": (7, _deposit),
    "deposit_failed": (1, _failed),
    "withdraw": (3, _withdraw),
    "bet": (40, _bet),
    "bonus_offered": (2, _bonus(bonus_type=lambda _: "reload", bonus_value_max=_amount,
                                wagering_multiplier=lambda _: 30,
                                valid_until=lambda random: random.now_ms + 10**9,
                                delivery_channel=lambda _: "in_app")),
    "bonus_claimed": (1, _bonus(bonus_value_granted=_amount, wagering_requirement=_amount)),
    "bonus_completed": (1, _bonus(total_wagered=_amount, wagering_requirement=_amount,
                                  time_to_complete_minutes=_count)),
    "bonus_cashed_out": (1, _bonus(cashout_amount=_amount, original_bonus_value=_amount,
                                   time_to_cashout_minutes=_count)),
}  # fmt: skip
_NAMES: Final = Pool([(name, weight) for name, (weight, _) in _EVENTS.items()])


def generate(count: int, seed: int, now_ms: int) -> list[dict[str, Any]]:
    """Generate valid envelopes from before `now_ms`, each event type at its share of traffic."""
    random = EventRandom(seed)
    random.now_ms = now_ms
    return [_envelope(random) for _ in range(count)]


def _envelope(random: EventRandom) -> dict[str, Any]:
    name = _NAMES.draw(random)
    address = ".".join(str(random.randrange(1, 255)) for _ in range(4))
    if random.random() < 0.3:
        address = f"2001:db8::{random.getrandbits(16):x}:{random.getrandbits(16):x}"
    return {
        "event": name,
        "timestamp": random.now_ms - random.randrange(10**6),
        "identity": {"client_user_id": _id(random, "user"), "click_id": _id(random, "click")},
        "context": {"ip_address": address, **_EVENTS[name][1](random)},
    }


def encode(events: Any) -> bytes:
    """Encode as JSON with spaces, as a partner's serialiser does."""
    return json.dumps(events).encode()
