"""`snapbid explain SSP FILE`: explain the answer to a bid request (contract 1, "Commands")."""

import sys
from typing import TYPE_CHECKING, Any

import click

from snapbid.base.settings import StoreSettings
from snapbid.cli import console
from snapbid.cli.shell import ShellCommand

if TYPE_CHECKING:
    from snapbid.operations.explain.codes import Code, RuleCheck
    from snapbid.operations.explain.overview import Explanation, Impression, MatchableRequest, Offer
    from snapbid.operations.explain.stores import Stores

NAMED = 3  # campaigns listed per group
Rows = dict[str, "list[RuleCheck]"]  # by impression


@click.command(
    cls=ShellCommand,
    examples=[
        "snapbid explain acme request.json",
        "snapbid explain acme request.json --campaign spring",
    ],
)
@click.argument("ssp", metavar="SSP")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--campaign", metavar="ID", help="Check every rule of this campaign, one by one.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def explain(ssp: str, file: str, campaign: str | None, as_json: bool) -> None:
    """Explain the answer to a bid request.

    FILE has the JSON of a bid request; - is stdin. For each impression, prints the winner, the
    runner-up, and the refused campaigns by rule, with the equivalent OpenRTB code if there is one.
    The request is decided as if it had just arrived, but nothing is counted or spent: a bid on one
    impression leaves budgets and frequency caps unchanged for the others. Exit status: 0, or 1 if
    the request is refused with an error.
    """
    settings = console.with_ledger()
    with console.opened(file) as source:
        body = source.read()
    answer, rows = console.finish(_explain(settings, ssp, body, campaign), settings.database_url)
    if as_json:
        import msgspec

        document: dict[str, Any] = msgspec.to_builtins(answer)
        if campaign is not None:
            document["campaign"] = {"id": campaign, "impressions": msgspec.to_builtins(rows)}
        console.print_object(document)
    else:
        _print_answer(answer, rows)
    sys.exit(int(answer.status >= 400))


def _print_answer(answer: "Explanation", rows: Rows) -> None:
    from snapbid.ledger.admin.parts import names

    _print_request(answer)
    for impression in answer.impressions:
        _print_impression(impression, rows.get(impression.id))
    if answer.left_out:
        click.echo()
        console.say(
            f"only the first 100 impressions are considered, not the other {answer.left_out}"
        )
    if answer.unavailable:
        console.say(
            f"unavailable in the ledger: {names(answer.unavailable)}; auctions there get a 204"
        )
    for id in answer.unread:
        console.say(f"campaign {id} never bids: its document is invalid (--campaign shows why)")


async def _explain(
    settings: StoreSettings, ssp: str, body: bytes, campaign: str | None
) -> "tuple[Explanation, Rows]":
    import time

    import msgspec
    from redis.exceptions import RedisError

    from snapbid.operations.explain.overview import MatchableRequest, explain, read, without
    from snapbid.operations.explain.stores import LedgerUnavailable, Stores

    async with Stores(settings) as stores:
        snapshot = await stores.snapshot(ssp)
        now_ms = time.time_ns() // 1_000_000
        asked = read(body, ssp, snapshot, now_ms, settings.bid_max_bytes)
        if not isinstance(asked, MatchableRequest):
            return asked, {}
        assert snapshot is not None
        persons = await stores.look_up_persons(asked)
        try:
            unavailable = await stores.unavailable()
            unanswered = without(asked, unavailable)
            if unanswered is not None:
                return unanswered, {}
            look, documents = stores.look, stores.documents
            answer = await explain(asked, snapshot, look, documents, settings.bid_cpu_ms)
            rows = {} if campaign is None else await _examine(stores, asked, campaign)
            origin = "warehouse" if snapshot.catalog.base is None else "catalog"
            unread = sorted(stores.unread)
            more = {
                "campaigns_from": origin,
                "unread": unread,
                "unavailable": unavailable,
                "persons": persons,
            }
            return msgspec.structs.replace(answer, **more), rows
        except (LedgerUnavailable, RedisError) as error:
            raise console.Refused("Redis (SNAPBID_REDIS_URL) does not answer") from error


async def _examine(stores: "Stores", asked: "MatchableRequest", campaign: str) -> Rows:
    try:
        rows = await stores.examine(campaign, asked)
    except ValueError as error:
        name = f"campaign {campaign[:60]!a}"
        raise console.Refused(f"{name} never bids: its document is invalid ({error})") from error
    if rows is None:
        raise console.Refused(console.no_campaign(campaign))
    return rows


def _print_request(answer: "Explanation") -> None:
    console.say(f"{answer.status}: {answer.reason}{_shown_code(answer.code)}")
    if answer.id is None:
        return
    canonical = "" if answer.canonical == answer.ssp else f" (canonical {answer.canonical})"
    console.say(f"request {answer.id} from {answer.ssp}{canonical}, as of {answer.at}")
    for why in answer.withheld:
        console.say(f"user data is withheld: {why}")
    if answer.currency != "USD":
        console.say(f"bids are in {answer.currency}; prices here are in USD")
    console.say(f"user: {answer.user}")
    for person in answer.persons:
        console.say(f"person: {person}")
    for name, values in answer.carries.items():
        console.say(f"  {name}: {', '.join(values)}")


def _print_impression(of: "Impression", rows: "list[RuleCheck] | None") -> None:
    click.echo()
    quantity = "" if of.quantity == 1 else f", a win costs {of.quantity:g} times the bid"
    console.say(f"impression {of.id}: {of.asks}, {of.floor}{quantity}")
    _print_offer("winner", of.winner)
    _print_offer("runner-up", of.runner_up)
    if rows is not None:
        _print_rows(rows)
        return
    if of.summary:
        console.say(f"  {of.summary}")
    for group in of.refused:
        console.say(f"  {group.count:>6}  {group.rule}{_shown_code(group.code)}")
        if group.why:
            console.say(f"          {group.why}")
        more = ", …" if group.count > NAMED else ""
        console.say(f"          {', '.join(group.campaigns[:NAMED])}{more}")


def _print_rows(rows: "list[RuleCheck]") -> None:
    for row in rows:
        console.say(f"  {'holds' if row.holds else 'REFUSES':<8} {row.rule}{_shown_code(row.code)}")
        console.say(f"           campaign: {row.asks}")
        console.say(f"           request:  {row.carries}")


def _print_offer(what: str, offer: "Offer | None") -> None:
    if offer is None:
        console.say(f"  {what}: none")
        return
    from snapbid.operations.explain import words

    deal = f", deal {offer.deal}" if offer.deal is not None else ""
    price = words.usd(round(offer.price * 1_000_000))
    text = f"  {what}: {offer.campaign} at {price}, creative {offer.creative}{deal}"
    console.say(f"{text}{_shown_code(offer.code)}")


def _shown_code(code: "Code | None") -> str:
    return f" [{code}]" if code is not None else ""
