"""Who is in which audience, told a second time from the contract alone: events in, ids out.

Everything is looked at from the start each time, by id and not by hash. An anonymous id shows its
devices for each of its users, and what it does alone counts for each of them. Some ids are
nobody's. Nothing has happened later than it was received.
"""

from collections.abc import Iterable, Mapping
from typing import Any

DAY_MS = 86_400_000
CHANNELS = ("allow_email", "allow_sms", "allow_push", "allow_chat_app")
NOBODYS = ("null", "11111111-1111-1111-1111-111111111111")


class Oracle:
    """The events of one product; `received`: when each came, epoch ms."""

    def __init__(self, events: Iterable[Mapping[str, Any]], received: Iterable[int]) -> None:
        self.events = [
            {**event, "identity": ids, "at": min(event["timestamp"], received_ms)}
            for event, received_ms in zip(events, received, strict=False)
            if (ids := {name: id for name, id in event["identity"].items() if id not in NOBODYS})
        ]
        self.users_of: dict[str, list[str]] = {}
        for identity in (event["identity"] for event in self.events):
            if {"anonymous_id", "client_user_id"} <= identity.keys():
                users = self.users_of.setdefault(identity["anonymous_id"], [])
                users.append(identity["client_user_id"])

    def persons(self, event: Mapping[str, Any]) -> set[str]:
        """The persons of an event: its user, or all users behind its anonymous id."""
        identity = event["identity"]
        if "client_user_id" in identity:
            return {str(identity["client_user_id"])}
        anonymous = identity["anonymous_id"]
        return {*self.users_of.get(anonymous, [f"anonymous {anonymous}"])}

    def shown(self, event: Mapping[str, Any]) -> set[str]:
        """The persons whom an event's device identifies."""
        anonymous = event["identity"].get("anonymous_id", "")
        return self.persons(event) | {*self.users_of.get(anonymous, ())}

    def devices(self, persons: set[str]) -> set[str]:
        """The devices that these persons were seen on."""
        return {
            event["context"]["device_id"].lower()
            for event in self.events
            if "device_id" in event["context"] and self.shown(event) & persons
        }

    def members(self, audience: Mapping[str, Any], now_ms: int) -> set[str]:
        """The devices of the persons in an audience."""
        times: dict[str, int] = {}
        for event in self.events:
            least = audience.get("min_amount_usd", 0)
            if event["event"] == audience["event"] and (
                not least or event["context"].get("amount", 0) >= least
            ):
                age_ms = now_ms - event["timestamp"]
                if age_ms < audience["within_days"] * DAY_MS:
                    for person in self.persons(event):
                        times[person] = times.get(person, 0) + 1
        return self.devices({who for who, n in times.items() if n >= audience.get("at_least", 1)})

    def excluded(self) -> set[str]:
        """The devices of persons who exclude themselves, or want no marketing at all."""
        state: dict[tuple[str, str], tuple[int, bool]] = {}

        def say(persons: set[str], subject: str, at: int, restricts: bool) -> None:
            for person in persons:
                before = state.get((person, subject), (-1, False))
                state[person, subject] = max(before, (at, restricts))

        for event in self.events:
            context, who, at = event["context"], self.persons(event), event["at"]
            match event["event"]:
                case "account_blocked" if context["block_reason"] == "self_exclusion":
                    say(who, "play", at, True)
                case "account_unblocked":
                    if context.get("previous_block_reason", "self_exclusion") == "self_exclusion":
                        say(who, "play", at, False)
                case "marketing_consent_updated":
                    say(who, "marketing", at, not any(context[each] for each in CHANNELS))
                case "register":
                    consent = context.get("privacy", {}).get("marketing_consent")
                    if consent is not None:
                        say(who, "marketing", at, not consent)
        return self.devices({who for (who, _), (_, restricts) in state.items() if restricts})
