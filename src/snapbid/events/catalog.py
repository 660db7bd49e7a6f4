"""The event catalog, version 3: all events of document 3, with their fields.

The typed structs, the readers of `examine` and the partners' API description are generated from it.
How to add an event: README.md.
"""

from typing import Final, Literal

from snapbid.campaigns.suppression import Identifies
from snapbid.events.fields import CORE, IGAMING, Event, Field, Kind, Level, Unit

Strictness = Literal["R", "S"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PLATFORMS: Final = {"mobile_os_1": "ios", "mobile_os_2": "android"}
"""Real names for document 3's placeholders; both are accepted, the real name is stored."""

STORES: Final = {"store_1": "app_store", "store_2": "google_play"}

GAME_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "slot": ("slot", "pachinko"),
    "live_casino": ("live", "gameshow"),
    "sportsbook": ("sport", "cockfight"),
    "fishing": ("fish", "arcade"),
    "table_games": ("baccarat", "blackjack", "roulette", "dice", "card", "table"),
    "poker": ("poker",),
    "lottery": ("lottery", "bingo", "instant"),
    "esports": ("esport",),
    "crash": ("crash", "aviator"),
}
"""Accepted aliases for each canonical key (document 3, `bet`)."""

GAME_TYPE_ALIASES: Final = {
    alias: key for key, aliases in GAME_TYPES.items() for alias in aliases if alias != key
}

PUSH_SOURCES: Final = ("system_prompt", "settings", "onboarding")
CONSENT_SOURCES: Final = ("signup", "settings_page", "unsubscribe_link", "support", "admin")
KYC_LEVELS: Final = ("basic", "enhanced", "full")
KYC_METHODS: Final = ("id_document", "video", "sms_otp", "address_proof", "bank_verification")
BLOCK_REASONS: Final = _words(
    "fraud bonus_abuse multi_account self_exclusion compliance payment_chargeback other"
)
KYC_REASONS: Final = _words(
    "document_invalid face_mismatch sanctions_hit underage duplicate document_unreadable "
    "document_expired name_mismatch age_restriction suspected_fraud other"
)
BONUS_TYPES: Final = _words(
    "welcome reload cashback freespin promo_code tournament value_voucher promo_cash other"
)
DEPOSIT_FAILURES: Final = _words(
    "insufficient_funds declined_by_issuer network_error fraud_blocked amount_limit unknown"
)
TIER_TRIGGERS: Final = _words(
    "lifetime_deposits monthly_wagering loyalty_points manual_admin tier_review other"
)


def _field(
    name: str, kind: Kind, level: Strictness, note: str, identifies: Identifies | None = None
) -> Field:
    path = f"context.{name}"
    return Field(path=path, kind=kind, level=Level(level), note=note, identifies=identifies)


def text(
    name: str, level: Strictness, note: str = "", identifies: Identifies | None = None
) -> Field:
    return _field(name, Kind.TEXT, level, note, identifies)


def flag(name: str, level: Strictness, note: str = "") -> Field:
    return _field(name, Kind.FLAG, level, note)


def digest(name: str, of: str) -> Field:
    note = f"SHA-256 of {of}, 64 hexadecimal digits"
    return _field(name, Kind.HASH, "S", note, "person")


def number(name: str, level: Strictness, note: str = "", unit: Unit | None = None) -> Field:
    path = f"context.{name}"
    return Field(path=path, kind=Kind.NUMBER, level=Level(level), unit=unit, note=note)


def money(name: str, level: Strictness, note: str = "", *, signed: bool = False) -> Field:
    return Field(
        path=f"context.{name}",
        kind=Kind.NUMBER,
        level=Level(level),
        monetary=True,
        signed=signed,
        note=note,
    )


def time(name: str, level: Strictness, note: str = "") -> Field:
    path = f"context.{name}"
    return Field(path=path, kind=Kind.TIME, level=Level(level), unit="ms", note=note)


def choice(
    name: str,
    level: Strictness,
    values: tuple[str, ...],
    note: str = "",
    *,
    deprecated: tuple[str, ...] = (),
    stored: dict[str, str] | None = None,
) -> Field:
    aliases = stored or {}
    return Field(
        path=f"context.{name}",
        kind=Kind.CHOICE,
        level=Level(level),
        values=(*values, *deprecated, *aliases),
        deprecated=deprecated,
        stored=aliases,
        note=note,
    )


CURRENCY: Final = _field("currency", Kind.CURRENCY, "R", "ISO 4217, or a crypto symbol")
IS_CRYPTO: Final = flag("is_crypto", "S", "whether the currency is a crypto symbol")
USER_AGENT: Final = text("user_agent", "S")
CALLING_CODE: Final = _field(
    "phone_country_code", Kind.CALLING_CODE, "S", "E.164 country calling code"
)
INSTALL_SOURCE: Final = text("attribution.install_source", "S", "media source or channel")
PLATFORM: Final = choice("platform", "R", ("ios", "android", "web"), stored=PLATFORMS)
JURISDICTION: Final = _field("jurisdiction", Kind.COUNTRY, "R", "ISO 3166-1 country code")
KYC_LEVEL: Final = choice("kyc_level", "R", KYC_LEVELS)
TRANSACTION: Final = text("transaction_id", "R", "unique transaction id")
BONUS: Final = text("bonus_id", "R", "bonus instance id, kept through its lifecycle")


def _core(name: str, summary: str, *fields: Field) -> Event:
    return Event(name=name, preset=CORE, summary=summary, fields=fields)


def _app(name: str, summary: str, *fields: Field, ip: Level = Level.REQUIRED) -> Event:
    own = (PLATFORM, text("app_version", "S"), *fields)
    return Event(name=name, preset=CORE, summary=summary, fields=own, lifecycle=True, ip=ip)


def _gaming(name: str, summary: str, *fields: Field) -> Event:
    return Event(name=name, preset=IGAMING, summary=summary, fields=fields)


def _payment(
    name: str,
    summary: str,
    *fields: Field,
    ip: Level = Level.REQUIRED,
    value: str | None = None,
    cost: str | None = None,
    free: str | None = None,
    result: str | None = None,
) -> Event:
    return Event(
        name=name,
        preset=IGAMING,
        summary=summary,
        fields=(TRANSACTION, *fields, IS_CRYPTO),
        ip=ip,
        key="transaction_id",
        value=value,
        cost=cost,
        free=free,
        result=result,
    )


def _bonus(name: str, summary: str, *fields: Field, key: str | None = "bonus_id") -> Event:
    own = (BONUS, *fields, IS_CRYPTO)
    return Event(name=name, preset=IGAMING, summary=summary, fields=own, key=key)


_CORE_EVENTS: Final = (
    _core(
        "register",
        "a new user account is created",
        USER_AGENT,
        digest("privacy.email_hash", "the email, lower case and trimmed"),
        digest("privacy.phone_hash", "the phone number in E.164"),
        flag("privacy.marketing_consent", "S"),
        INSTALL_SOURCE,
        CALLING_CODE,
        time("consent_timestamp", "S", "last consent change"),
        *(text(f"attribution.utm_{part}", "S")
          for part in ("source", "medium", "campaign", "content", "term")),
    ),
    _core(
        "referral_register",
        "registration attributed to a referral",
        text("referral_client_user_id", "S", "the referrer's client_user_id", "user"),
    ),
    _core("login", "a user authenticates", USER_AGENT),
    _core(
        "email_verified",
        "an email address is verified",
        digest("email_hash", "the email, lower case and trimmed"),
        choice("verification_method", "S", ("link", "otp", "magic_link")),
    ),
    _core(
        "phone_verified",
        "a phone number is verified",
        digest("phone_hash", "the phone number in E.164"),
        CALLING_CODE,
        choice(
            "verification_method",
            "S",
            ("sms_otp", "voice_call", "chat_app_otp"),
            deprecated=("call", "chat_app"),
        ),
    ),
    _core(
        "marketing_consent_updated",
        "the full state of all four channels, each time",
        *(flag(f"allow_{channel}", "R") for channel in ("email", "sms", "push", "chat_app")),
        choice("update_source", "S", CONSENT_SOURCES),
    ),
    _app(
        "app_install",
        "the app is first installed and opened",
        INSTALL_SOURCE,
        text("device_id", "S", identifies="person"),
        choice("store", "S", ("app_store", "google_play", "apk_direct"), stored=STORES),
        text("campaign_id", "S"),
        flag("is_reattribution", "S", "true for reinstall or reattribution"),
        ip=Level.SUGGESTED,
    ),
    _app(
        "app_open",
        "app launch or foreground",
        text("session_id", "S"),
        flag("is_first_open", "S", "true for the first open after install"),
    ),
    _app(
        "app_uninstall",
        "the app is removed",
        number("days_since_install", "S", unit="days"),
    ),
    Event(
        name="push_permission_updated",
        preset=CORE,
        summary="the permission to send push messages changes",
        fields=(
            PLATFORM,
            choice(
                "permission_status", "R", ("granted", "denied", "provisional", "revoked")
            ),
            flag("push_enabled", "S", "true if permission is granted"),
            choice("update_source", "S", PUSH_SOURCES),
        ),
        lifecycle=True,
    ),
)  # fmt: skip

_GAMING_EVENTS: Final = (
    Event(
        name="session_ended",
        preset=IGAMING,
        summary="a gaming session is over",
        fields=(
            text("session_id", "R", "unique session id"),
            time("session_start_at", "R"),
            number("duration_minutes", "R", "total session length", "minutes"),
            money("total_wagered", "S"),
            money("total_won", "S"),
            number("bet_count", "S"),
            _field("currency", Kind.CURRENCY, "S", "required with a total"),
            IS_CRYPTO,
            choice("end_reason", "S", ("user_logout", "timeout", "forced_logout", "unknown")),
        ),
        required_with={"currency": ("total_wagered", "total_won")},
    ),
    _gaming(
        "vip_tier_changed",
        "a user's VIP tier changes; `upgrade` for the first one",
        text("new_tier", "R", "current tier"),
        text("previous_tier", "S"),
        choice("direction", "R", ("upgrade", "downgrade", "lateral")),
        choice("trigger", "S", TIER_TRIGGERS),
    ),
    _gaming(
        "kyc_completed",
        "an identity check of one level succeeds",
        KYC_LEVEL,
        JURISDICTION,
        choice("verification_method", "R", KYC_METHODS),
        number("time_to_complete_minutes", "S", "from register to this event", "minutes"),
    ),
    _gaming(
        "kyc_rejected",
        "an identity check fails",
        KYC_LEVEL,
        JURISDICTION,
        choice("rejection_reason", "R", KYC_REASONS),
        text("verification_method", "S", "method attempted"),
        number("time_to_reject_minutes", "S", "from register to this event", "minutes"),
    ),
    _gaming(
        "account_blocked",
        "an account is blocked",
        choice("block_reason", "R", BLOCK_REASONS),
        choice("block_duration", "S", ("permanent", "temporary", "under_review")),
        time("expected_unblock_at", "S", "for temporary blocks"),
    ),
    _gaming(
        "account_unblocked",
        "a block is lifted",
        choice(
            "unblock_reason",
            "R",
            ("review_passed", "appeal_approved", "cooldown_ended", "manual_admin", "other"),
            deprecated=("temporary_expired",),
        ),
        text("previous_block_reason", "S", "reason of the block being lifted"),
    ),
    _payment(
        "deposit_initiated",
        "a deposit begins; its transaction_id is that of its outcome",
        money("amount", "R", "requested amount"),
        CURRENCY,
        text("payment_method", "S", "payment channel chosen by the user"),
    ),
    _payment(
        "deposit",
        "a deposit succeeds",
        money("amount", "R"),
        CURRENCY,
        text("payment_method", "S"),
        value="amount",
    ),
    _payment(
        "deposit_failed",
        "a deposit fails",
        money("attempted_amount", "R"),
        CURRENCY,
        text("payment_method", "R", "method attempted"),
        choice("failure_reason", "R", DEPOSIT_FAILURES),
    ),
    _payment("withdraw", "money is paid out", money("amount", "R"), CURRENCY, cost="amount"),
    _payment(
        "bet",
        "one settled bet, stake and outcome together",
        choice("game_type", "R", tuple(GAME_TYPES), stored=GAME_TYPE_ALIASES),
        text("game_provider", "R", "provider name"),
        text("game_name", "S", "game title"),
        money("amount", "R", "total stake"),
        CURRENCY,
        money("cash_bet_amount", "S", "cash portion of the stake"),
        money("bonus_bet_amount", "S", "bonus portion of the stake"),
        choice("bet_result", "R", ("win", "loss")),
        money("bet_result_amount", "R", "net outcome, negative for a loss", signed=True),
        choice("ticket_type", "S", ("single", "multi", "system"), "sportsbook"),
        flag("is_live", "S", "sportsbook in-play bet"),
        flag("is_free", "S", "free-bet token; excluded from lifetime value"),
        ip=Level.SUGGESTED,
        cost="bet_result_amount",
        free="is_free",
        result="bet_result",
    ),
    _bonus(
        "bonus_offered",
        "first event of a bonus",
        choice("bonus_type", "R", BONUS_TYPES),
        money("bonus_value_max", "R", "maximum grantable amount"),
        CURRENCY,
        number("wagering_multiplier", "R", "30 means 30 times, 0 none"),
        time("valid_until", "R", "offer expiry"),
        choice(
            "delivery_channel",
            "R",
            ("auto_grant", "email", "in_app", "push", "promo_code", "sms"),
        ),
    ),
    _bonus(
        "bonus_claimed",
        "an offered bonus is claimed",
        money("bonus_value_granted", "R", "amount granted, at most bonus_value_max"),
        CURRENCY,
        money("wagering_requirement", "R", "bonus_value_granted times wagering_multiplier"),
    ),
    _bonus(
        "bonus_completed",
        "the wagering requirement is met",
        money("total_wagered", "R", "final wagered amount"),
        money("wagering_requirement", "R", "same as claimed"),
        CURRENCY,
        number("time_to_complete_minutes", "R", "from bonus_claimed", "minutes"),
    ),
    _bonus(
        "bonus_cashed_out",
        "bonus money moves to the wallet; several times for one bonus",
        money("cashout_amount", "R", "amount moved to the real-money wallet"),
        money("original_bonus_value", "R", "bonus_value_granted of the claim"),
        CURRENCY,
        number("time_to_cashout_minutes", "R", "from bonus_claimed", "minutes"),
        key=None,
    ),
)

EVENTS: Final[dict[str, Event]] = {event.name: event for event in (*_CORE_EVENTS, *_GAMING_EVENTS)}
"""Events by name, in the order of document 3."""
