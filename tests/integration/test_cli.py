"""The operator's commands against a real PostgreSQL, and as the processes that they are."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.commands import invoke
from support.load_results import phase, result
from support.stack import clean_environ, connected, execute, fetch, run
from support.vast import wrapper

from snapbid.campaigns.click_id import NO_AUCTION, Click, creative_digest
from snapbid.embedded import Home, Postgres
from snapbid.warehouse import audit, conversions, migrate, unavailable

Cli = Callable[..., subprocess.CompletedProcess[str]]
CAMPAIGN: dict[str, Any] = {
    "id": "c1",
    "advertiser": "shop.example",
    "cpm": 2.5,
    "creatives": [{"id": "n", "media": "banner", "adm": "<p>", "w": 1, "h": 1}],
}
NO_BUDGET = "\t" * 7
SSPS = "descriptor\tcanonical\tallow\tqps\tnotices\n"
CAMPAIGNS = (
    "id\tstatus\tcpm\tmedia\tadvertiser\tname\tpacing\tspent\tspent today\theld\tleft today\tleft"
    "\tsuspended\n"
)


@pytest.fixture
def cli(database: str) -> Cli:
    def call(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return invoke({"SNAPBID_DATABASE_URL": database}, *arguments, **more)

    return call


def write(path: Path, *documents: object) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
    return str(path)


def done(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def refused(result: subprocess.CompletedProcess[str], status: int = 1) -> list[str]:
    assert (result.returncode, result.stdout) == (status, "")
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()


def test_ssp(cli: Cli) -> None:
    assert done(cli("ssp", "list")) == SSPS
    assert done(cli("ssp", "list", "--json")) == "[]\n"
    assert done(cli("ssp", "add", "acme")) == "acme: added (canonical acme)\n"
    added = done(cli("ssp", "add", "acme-eu", "--canonical", "acme"))
    assert added == "acme-eu: added (canonical acme)\n"
    assert done(cli("ssp", "add", "acme")) == "acme: unchanged (canonical acme)\n"
    assert done(cli("ssp", "list")) == SSPS + "acme\tacme\t\t\t\nacme-eu\tacme\t\t\t\n"
    assert json.loads(done(cli("ssp", "list", "--json"))) == [
        {"descriptor": "acme", "canonical": "acme", "allow": [], "qps": None, "signed": False},
        {"descriptor": "acme-eu", "canonical": "acme", "allow": [], "qps": None, "signed": False},
    ]
    today = datetime.now(UTC).date()
    changed = done(cli("ssp", "add", "acme-eu"))
    assert changed in [
        "acme-eu: updated (canonical acme-eu, was acme)\n"
        f"acme-eu is reported under acme until the end of {day} (UTC); "
        "--open-days changes open days as well\n"
        for day in (today, today + timedelta(1))
    ]
    changed = done(cli("ssp", "add", "acme-eu", "--open-days"))
    assert changed == "acme-eu: unchanged (canonical acme-eu)\n"
    assert refused(cli("ssp", "add", "x", "--canonical", "y")) == [
        "the canonical id 'y' is not registered: add it first"
    ]
    (rule,) = refused(cli("ssp", "add", "a b"))
    assert rule.startswith("ID must be 1 to 128 characters of A-Z a-z 0-9 . _ ~ -, found 3")


def test_who_may_send_as_an_ssp(cli: Cli) -> None:
    done(cli("ssp", "add", "acme"))
    assert done(cli("ssp", "set", "acme", "--qps", "500")) == "acme: allow any, qps 500\n"
    networks = ("--allow", "192.0.2.0/24", "--allow", "2001:DB8::/32", "--allow", "192.0.2.0/24")
    set_ = done(cli("ssp", "set", "acme", *networks))
    assert set_ == "acme: allow 192.0.2.0/24, 2001:db8::/32, qps 500\n"
    assert done(cli("ssp", "list")) == SSPS + "acme\tacme\t192.0.2.0/24,2001:db8::/32\t500\t\n"
    (listed,) = json.loads(done(cli("ssp", "list", "--json")))
    assert (listed["allow"], listed["qps"]) == (["192.0.2.0/24", "2001:db8::/32"], 500)
    replaced = done(cli("ssp", "set", "acme", "--allow", "::ffff:198.51.100.1", "--qps", "1"))
    assert replaced == "acme: allow 198.51.100.1/32, qps 1\n"
    assert done(cli("ssp", "add", "acme")) == "acme: unchanged (canonical acme)\n"
    assert done(cli("ssp", "list")) == SSPS + "acme\tacme\t198.51.100.1/32\t1\t\n"
    assert done(cli("ssp", "set", "acme", "--qps", "any")) == (
        "acme: allow 198.51.100.1/32, qps any\n"
    )
    assert done(cli("ssp", "set", "acme", "--allow", "any")) == "acme: allow any, qps any\n"
    signed = done(cli("ssp", "set", "acme", "--signed-notices"))
    assert signed == "acme: allow any, qps any, notices signed\n"
    assert done(cli("ssp", "list")) == SSPS + "acme\tacme\t\t\tsigned\n"
    assert done(cli("ssp", "set", "acme", "--plain-notices")) == "acme: allow any, qps any\n"


@pytest.mark.parametrize(
    ("arguments", "mistakes"),
    [
        ([], ["nothing to set: pass --allow, --qps or --signed-notices"]),
        (
            ["--allow", "10.0.0.1/8", "--allow", "2001:db8::", "--allow", "x", "--qps", "0"],
            [
                "--allow '10.0.0.1/8' has bits set beyond its prefix: did you mean 10.0.0.0/8?",
                "--allow 'x' must be an IPv4 or IPv6 address or network",
                "--qps '0': must be an integer from 1 to 1000000, or any",
            ],
        ),
        (["--qps", "1000001"], ["--qps '1000001': must be an integer from 1 to 1000000, or any"]),
        (["--qps", "\u0661"], ["--qps '\\u0661': must be an integer from 1 to 1000000, or any"]),
        (
            ["--allow", "any", "--allow", "::1"],
            ["--allow 'any' must be an IPv4 or IPv6 address or network"],
        ),
    ],
)
def test_invalid_settings_of_an_ssp(cli: Cli, arguments: list[str], mistakes: list[str]) -> None:
    done(cli("ssp", "add", "acme"))
    assert refused(cli("ssp", "set", "acme", *arguments), 2) == mistakes
    assert done(cli("ssp", "list")) == SSPS + "acme\tacme\t\t\t\n"


def test_ssp_remove(cli: Cli) -> None:
    done(cli("ssp", "add", "acme"))
    done(cli("ssp", "add", "acme-eu", "--canonical", "acme"))
    assert refused(cli("ssp", "remove", "acme")) == [
        "acme is the canonical id of acme-eu: remove them first"
    ]
    assert done(cli("ssp", "remove", "acme-eu")) == "acme-eu: removed\n"
    assert done(cli("ssp", "remove", "acme")) == "acme: removed\n"
    for command in (("remove", "acme"), ("set", "acme", "--qps", "1")):
        assert refused(cli("ssp", *command)) == [
            "'acme' is not registered: add it with snapbid ssp add"
        ]
    assert done(cli("ssp", "list")) == SSPS


def test_campaigns_outside_their_flight_are_not_listed_as_active(
    cli: Cli, database: str, tmp_path: Path
) -> None:
    past, future = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
    flights = {
        "ended": {"ends_at": past},
        "scheduled": {"starts_at": future},
        "active": {"starts_at": past, "ends_at": future},
        "paused": {"ends_at": past, "status": "paused"},
    }
    file = write(tmp_path / "a.jsonl", *(CAMPAIGN | {"id": id} | of for id, of in flights.items()))
    assert cli("campaign", "import", file).returncode == 0
    odd = '{"id": "odd", "starts_at": "soon", "ends_at": 7}'
    insert = f"insert into campaign (id, document) values ('odd', '{odd}')"
    asyncio.run(execute(database, insert))
    _, *rows = done(cli("campaign", "list")).splitlines()
    states = dict(row.split("\t")[:2] for row in rows)
    assert states == {id: id for id in flights} | {"odd": "active"}


def test_campaigns(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", CAMPAIGN, {**CAMPAIGN, "id": "c2", "name": "a\tb\x1b[31m"})
    imported = done(cli("campaign", "import", file))
    assert imported == "2 campaigns imported: 2 added, 0 changed, 0 unchanged\n"
    assert done(cli("campaign", "pause", "c1")) == "c1: paused\n"
    assert done(cli("campaign", "pause", "c1")) == "c1: paused already\n"
    assert done(cli("campaign", "list")) == (
        f"{CAMPAIGNS}c1\tpaused\t2.5\tbanner\tshop.example\t{NO_BUDGET}\n"
        f"c2\tactive\t2.5\tbanner\tshop.example\ta\\tb\\x1b[31m{NO_BUDGET}\n"
    )
    assert done(cli("campaign", "resume", "c1")) == "c1: active\n"
    assert refused(cli("campaign", "pause", "c3")) == ["there is no campaign with the id 'c3'"]
    listed = done(cli("campaign", "list", "--json"))
    assert json.loads(listed)[0] == {**CAMPAIGN, "status": "active"}
    (tmp_path / "back.json").write_text(listed, encoding="utf-8")
    back = done(cli("campaign", "import", str(tmp_path / "back.json")))
    assert back == "2 campaigns imported: 0 added, 0 changed, 2 unchanged\n"


def test_the_performance_of_campaigns(cli: Cli, database: str, tmp_path: Path) -> None:
    done(cli("campaign", "import", write(tmp_path / "a.jsonl", CAMPAIGN)))
    head = "campaign\tbids\twins\timps\tspend\tregistrations\tfirst_deposits\tnet_deposits\t"
    head += "gross_revenue\tcost_per_registration\tcost_per_first_deposit\treturn_on_spend\t"
    head += "unvalued\n"
    assert done(cli("campaign", "performance")) == head
    assert "registrations" not in done(cli("campaign", "show", "c1"))
    for statement in (
        "insert into campaign_daily (day, campaign, bids, wins, imps, spend_micros)"
        " values ('2026-11-01', 'c1', 9, 3, 2, 12000000)",
        "insert into conversion_daily (day, campaign, creative, descriptor, event, conversions,"
        " value_micros, first_deposits) values"
        " ('2026-11-01', 'c1', 'b', 'acme', 'register', 4, 0, 0),"
        " ('2026-11-02', 'c1', 'b', 'acme', 'deposit', 2, 30000000, 1),"
        " ('2026-11-02', 'c1', 'b', 'acme', 'bet', 7, 6000000, 0)",
    ):
        asyncio.run(execute(database, statement))
    row = "c1\t9\t3\t2\t12.000000\t4\t1\t30.000000\t6.000000\t3.000000\t12.000000\t0.500000\t0\n"
    assert done(cli("campaign", "performance")) == head + row
    other = cli("campaign", "performance", "c1", "other")
    assert (other.returncode, other.stdout) == (0, head + row)
    assert other.stderr == "warning: there are no figures for 'other'\n"
    assert head + row in done(cli("campaign", "show", "c1"))
    days = ("--from", "2026-11-01", "--to", "2026-11-01")
    (listed,) = json.loads(done(cli("campaign", "performance", "c1", *days, "--json")))
    assert (listed["spend"], listed["conversions"]) == (12.0, {"register": 4})
    assert (listed["net_deposits"], listed["cost_per_first_deposit"]) == (0.0, None)
    lines = done(cli("campaign", "performance", "--csv")).splitlines()
    assert lines[0].endswith(",return_on_spend,unvalued,bet,deposit,register")
    assert lines[1].endswith(",0.500000,0,7,2,4")
    backwards = cli("campaign", "performance", "--from", "2026-11-02", "--to", "2026-11-01")
    assert refused(backwards, 2) == ["--to must not be before --from"]
    for option in ("--from", "--to"):
        for text in ("2026-13-01", "2026-1-1", "20260101", "yesterday"):
            misdated = cli("campaign", "performance", option, text)
            assert f"must be a date like 2026-01-31, found '{text}'" in misdated.stderr
            assert misdated.returncode == 2
    asyncio.run(execute(database, "update conversion_daily set unvalued = 2 where event = 'bet'"))
    for style in ((), ("--json",), ("--csv",)):
        warned = cli("campaign", "performance", *style).stderr
        assert warned == (
            "warning: 2 amounts counted as 0 USD: over a billion USD, or without an exchange rate"
            " (add rates with `snapbid rates import`)\n"
        )
    done(cli("campaign", "import", write(tmp_path / "b.jsonl", CAMPAIGN | {"id": "=1+1"})))
    statement = "insert into campaign_daily (day, campaign, bids) values ('2026-11-03', '=1+1', 1)"
    asyncio.run(execute(database, statement))
    assert "\n'=1+1,1," in cli("campaign", "performance", "--csv").stdout


def test_a_click_counts_for_as_long_as_the_document_states(cli: Cli, database: str) -> None:
    text = json.dumps({**CAMPAIGN, "attribution_days": 7.0})
    done(cli("campaign", "import", "-", input=text))
    rows = asyncio.run(fetch(database, "select attribution_days from campaign"))
    assert [*map(tuple, rows)] == [(7,)]


def test_click_ids(cli: Cli, database: str) -> None:
    creative = {**CAMPAIGN["creatives"][0], "adm": "<a href='https://s.example/?c={{click_id}}'>"}
    document = {**CAMPAIGN, "attribution_days": 7, "creatives": [creative]}
    store = "insert into campaign (id, document) values ('c1', $1::text::jsonb)"
    asyncio.run(execute(database, store, json.dumps(document)))
    done(cli("ssp", "add", "acme"))

    async def signed(auction: bytes, person: int) -> str:
        async with connected(database) as connection:
            campaign = await connection.fetchval("select number from campaign_number")
            ssp = await connection.fetchval("select number from ssp_number")
            (key,) = (await conversions.fetch_keys(connection)).values()
            digest = creative_digest(creative["id"])
            return key.make(Click(campaign, digest, ssp, 1_800_000_000, auction, person))

    ids = [asyncio.run(signed(b"8 bytes.", 5)), asyncio.run(signed(NO_AUCTION, 0))]
    for id, auction in zip(ids, (b"8 bytes.".hex(), None), strict=True):
        assert json.loads(done(cli("click", "show", id))) == {
            "campaign": "c1",
            "creative": creative["id"],
            "descriptor": "acme",
            "time": "2027-01-15T08:00:00Z",
            "countsUntil": "2027-01-22T08:00:00Z",
            "auction": auction,
            "person": auction is not None,
        }
    done(cli("click", "rotate"))
    (said,) = refused(cli("click", "rotate"))
    end = datetime.now(UTC) + timedelta(days=30)
    assert said.startswith("clicks signed with the previous key may count until ")
    assert f"{end:%F}" in said or f"{end - timedelta(minutes=5):%F}" in said
    assert json.loads(done(cli("click", "show", ids[0])))
    done(cli("click", "rotate", "--yes"))
    for text in (ids[0], "EAIaIQobChMI"):
        (said,) = refused(cli("click", "show", text))
        assert said.startswith("this is not a click id of this warehouse")


def test_show(cli: Cli, tmp_path: Path) -> None:
    banner = {
        "id": "b\t", "media": "banner", "w": 1, "h": 1,
        "adm": '<p title="{{imp_id}}">\n{{auction_id}}<img src="https://{{campaign_id}}/?cb={{cachebuster}}">'
               "<script>f('{{campaign_id}}')</script>",
    }  # fmt: skip
    native = {"title": "{{imp_id}}", "link": {"url": "https://t.example/{{auction_id}}"}}
    video = {"vasttag": wrapper("3.0").replace("<AdSystem>a", "<AdSystem>{{imp_id}}")}
    response = json.dumps({"assets": [{"video": video}], "link": {"url": "https://x"}})
    document = {
        **CAMPAIGN,
        "cpm": 2.500001,
        "creatives": [
            banner,
            {"id": "n", "media": "native", "native": native},
            {"id": "r", "media": "native", "adm": response, "duration": 15},
        ],
    }
    done(cli("campaign", "import", write(tmp_path / "a.jsonl", document, {**CAMPAIGN, "id": "c2"})))
    shown, _, places = done(cli("campaign", "show", "c1")).partition("\n\n")
    assert json.loads(shown) == {**document, "status": "active"}
    assert places.splitlines() == [
        "creative\tfield\tline\tmacro\tplace",
        "b\\t\tadm\t1\t{{imp_id}}\tattribute title of <p>",
        "b\\t\tadm\t2\t{{auction_id}}\ttext of <p>",
        "b\\t\tadm\t2\t{{campaign_id}}\thost of a URL, attribute src of <img>",
        "b\\t\tadm\t2\t{{cachebuster}}\tURL parameter cb, attribute src of <img>",
        "b\\t\tadm\t2\t{{campaign_id}}\tscript of <script>",
        "n\tnative.link.url\t1\t{{auction_id}}\tURL",
        "n\tnative.title\t1\t{{imp_id}}\ttext",
        "r\tadm.assets[0].video.vasttag\t1\t{{imp_id}}\ttext of <adsystem>",
    ]
    both = json.loads(done(cli("campaign", "show", "c1", "--json")))
    assert both["document"] == {**document, "status": "active"}
    assert both["macros"][3] == {
        "creative": "b\t", "field": "adm", "macro": "cachebuster", "line": 2,
        "where": "URL parameter", "element": "img", "attribute": "src", "parameter": "cb",
    }  # fmt: skip
    assert json.loads(done(cli("campaign", "show", "c2", "--json")))["macros"] == []
    assert json.loads(done(cli("campaign", "show", "c2")))["id"] == "c2"
    assert refused(cli("campaign", "show", "c3")) == ["there is no campaign with the id 'c3'"]


def test_list_shows_what_plain_sql_wrote(cli: Cli, database: str) -> None:
    deep = '{"id": "b", "creatives": ' + "[" * 3_000 + "]" * 3_000 + "}"
    sql = "insert into campaign (id, document) values ($1, $2::text::jsonb)"
    odd = '{"id": "a", "cpm": [1], "creatives": 5, "name": {}}'
    asyncio.run(execute(database, sql, "a", odd))
    asyncio.run(execute(database, sql, "b", deep))
    listed = f"{CAMPAIGNS}a\tactive\t[1]\t\t\t{{}}{NO_BUDGET}\nb\tactive\t\t\t\t{NO_BUDGET}\n"
    assert done(cli("campaign", "list")) == listed
    assert json.loads(done(cli("campaign", "show", "a"))) == {**json.loads(odd), "status": "active"}
    assert done(cli("campaign", "show", "b")).startswith("{")


def test_import_from_stdin(cli: Cli) -> None:
    imported = done(cli("campaign", "import", "-", input=json.dumps(CAMPAIGN)))
    assert imported == "1 campaign imported: 1 added, 0 changed, 0 unchanged\n"


def test_a_file_with_mistakes_is_refused_whole(cli: Cli, tmp_path: Path) -> None:
    wrong = {**CAMPAIGN, "id": "c2", "cpm": 0, "targeting": {"country": {"include": ["XX"]}}}
    file = write(tmp_path / "a.jsonl", CAMPAIGN, wrong, CAMPAIGN)
    assert refused(cli("campaign", "import", file)) == [
        "line 2: cpm: must be more than 0, found 0",
        'line 2: targeting.country.include[0]: is not an ISO 3166-1 country: "XX"',
        'line 3: id: is already the id of line 1: "c1"',
    ]
    assert done(cli("campaign", "list")) == CAMPAIGNS


def test_wrong_usage(cli: Cli, tmp_path: Path) -> None:
    assert "does not exist" in refused(cli("campaign", "import", str(tmp_path / "no")), 2)[-1]
    assert refused(cli("campaign", "pause"), 2)
    assert refused(cli("campaigns"), 2)


def test_migrate(postgres: Postgres, database: str) -> None:
    result = run({"SNAPBID_DATABASE_URL": database}, "migrate")
    assert done(result) == "the schema is up to date\n"
    unmigrated = {"SNAPBID_DATABASE_URL": postgres.dsn_of("postgres")}
    (rule,) = refused(run(unmigrated, "ssp", "list"))
    assert rule == "the warehouse's schema does not fit this program: run snapbid migrate"


def test_the_embedded_instance_is_found(database: str, tmp_path: Path) -> None:
    environ = {"SNAPBID_HOME": str(tmp_path / "home")}
    settings = {"SNAPBID_DATABASE_URL": database, "SNAPBID_JWT_ISSUER": "snapbid"}
    with Home(tmp_path / "home") as home:
        home.announce(settings)
        lines = done(run(environ, "env")).splitlines()
        assert lines == [f"{name}={value}" for name, value in settings.items()]
        assert done(run(environ, "ssp", "add", "acme")) == "acme: added (canonical acme)\n"
    assert "snapbid up" in refused(run(environ, "env"))[0]
    (rule,) = refused(run(environ, "ssp", "list"), 2)
    assert rule.startswith(
        "SNAPBID_DATABASE_URL is not set and no embedded instance is running in "
    )


def test_wrong_settings_are_all_named() -> None:
    lines = refused(run({"SNAPBID_PORT": "x", "SNAPBID_WORKERS": "0"}, "ssp", "list"), 2)
    assert [line.split()[0] for line in lines] == ["SNAPBID_PORT", "SNAPBID_WORKERS"]
    lines = refused(run({}, "serve"), 2)
    assert [line.split()[0] for line in lines] == [
        "SNAPBID_REDIS_URL",
        "SNAPBID_DATABASE_URL",
        "SNAPBID_JWT_SECRET",
    ]


FULL = "the output cannot be written: No space left on device"
UNREADABLE = "/proc/self/mem cannot be read: Input/output error"
CLOSED = "stdout is closed: nothing was done, since nothing could be printed"


@pytest.mark.parametrize(("output", "message"), [(">/dev/full", FULL), (">&-", CLOSED)])
@pytest.mark.parametrize("command", ["ssp list", "key issue shop", "rates list"])
def test_an_output_that_cannot_be_written_is_one_line(
    database: str, command: str, output: str, message: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -m snapbid {command} {output}'],
        env=clean_environ({"SNAPBID_DATABASE_URL": database}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, message)
    assert "Traceback" not in done.stderr
    if message == CLOSED:
        assert not asyncio.run(fetch(database, "select from product where name = 'shop'"))


@pytest.mark.parametrize(
    ("command", "output", "printed"),
    [
        ("campaign export", ">/dev/full", [FULL]),
        ("campaign export", "| head -1 | wc -l", []),
        ("campaign import /proc/self/mem", "", [UNREADABLE]),
        ("audience import all /proc/self/mem", "", [UNREADABLE]),
    ],
)
def test_a_file_that_fails_while_connected_is_not_the_warehouse(
    database: str, command: str, output: str, printed: list[str]
) -> None:
    """The campaigns fill the buffers of the output and of a pipe."""
    store = (
        "insert into campaign (id, document) select 'c' || n,"
        " jsonb_build_object('id', 'c' || n, 'name', repeat('x', 10000))"
        " from generate_series(1, 50) n"
    )
    asyncio.run(execute(database, store))
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m snapbid {command} {output}'],
        env=clean_environ({"SNAPBID_DATABASE_URL": database}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.stderr.splitlines() == printed
    assert done.returncode == int(bool(printed))


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("campaign check {0}/a.jsonl >/dev/full", [FULL]),
        ("campaign check {0}/a.jsonl | head -1 | wc -l", []),
        ("load compare {0}/a.json {0}/a.json >/dev/full", [FULL]),
        ("export alerts --output {0}/alerts.yml >/dev/full", [FULL]),
    ],
)
def test_a_full_output_is_not_the_file(tmp_path: Path, command: str, printed: list[str]) -> None:
    write(tmp_path / "a.jsonl", *({**CAMPAIGN, "id": f"c{number}"} for number in range(3_000)))
    (tmp_path / "a.json").write_text(json.dumps(result(phase("load", 1.0))))
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m snapbid {command.format(tmp_path)}'],
        env=clean_environ({"SNAPBID_HOME": str(tmp_path)}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.stderr.splitlines() == printed
    assert done.returncode == int(bool(printed))


def test_an_unavailable_warehouse_is_one_line(tmp_path: Path) -> None:
    environ = {"SNAPBID_DATABASE_URL": f"postgresql:///snapbid?host={tmp_path}&user=snapbid"}
    for command in (["ssp", "list"], ["migrate"], ["campaign", "pause", "x"]):
        (line,) = refused(run(environ, *command))
        assert line.startswith("the warehouse (SNAPBID_DATABASE_URL) failed: ")


async def test_a_frozen_warehouse_times_out(monkeypatch: Any) -> None:
    """What accepts the connection and says nothing: a stopped process, a firewall."""
    assert unavailable.CONNECT_S <= 10
    monkeypatch.setattr(unavailable, "CONNECT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        server = f"127.0.0.1:{frozen.getsockname()[1]}"
        dsn = f"postgresql://snapbid@{server}/snapbid"
        for waiting in (audit.connect(dsn, "snapbid"), migrate.migrate(dsn)):
            task = asyncio.ensure_future(waiting)
            done, _ = await asyncio.wait([task], timeout=30)
            assert done
            error = task.exception()
            assert isinstance(error, TimeoutError)
            assert (
                unavailable.describe(error, dsn)
                == f"the warehouse is unavailable: {server} does not answer in time"
            )


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from snapbid.cli.main import main; main(['--help'], standalone_mode=False);"
        "sys.exit(any(name in sys.modules for name in ('asyncpg', 'rich', 'asyncio', 'granian')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0
    assert "campaign" in result.stdout


def test_delete_and_export(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", CAMPAIGN, {**CAMPAIGN, "id": "c2"}, {**CAMPAIGN, "id": "c3"})
    done(cli("campaign", "import", file))
    done(cli("campaign", "pause", "c2"))
    lines = done(cli("campaign", "export")).splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["c1", "c2", "c3"]
    assert json.loads(lines[1]) == {**CAMPAIGN, "id": "c2", "status": "paused"}
    for name in ("two.json", "two.jsonl"):
        target = str(tmp_path / name)
        said = done(cli("campaign", "export", "c3", "c1", "--output", target))
        assert said == f"wrote 2 campaigns to {target}\n"
        back = done(cli("campaign", "import", target))
        assert back == "2 campaigns imported: 0 added, 0 changed, 2 unchanged\n"
        (said,) = refused(cli("campaign", "export", "--output", target))
        assert said == f"{target} already exists: choose another file or remove it"
    assert refused(cli("campaign", "export", "c1", "c4")) == [
        "there is no campaign with the id 'c4'"
    ]
    assert done(cli("campaign", "delete", "c1")) == "c1: deleted\n"
    assert refused(cli("campaign", "delete", "c1")) == ["there is no campaign with the id 'c1'"]
    assert len(done(cli("campaign", "export")).splitlines()) == 2
    (entry,) = json.loads(done(cli("audit", "c1", "--json")))[1:]
    assert (entry["action"], entry["application"]) == ("removed", "snapbid campaign delete")


def test_an_import_warns_of_what_can_never_bid(cli: Cli, tmp_path: Path) -> None:
    ended = [
        {**CAMPAIGN, "id": f"e{number:02}", "ends_at": "2020-01-01T00:00:00Z"}
        for number in range(22)
    ]
    result = cli("campaign", "import", write(tmp_path / "a.jsonl", CAMPAIGN, *ended))
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        f"warning: campaign e{number:02} can never bid: ends_at is in the past"
        for number in range(22)
    ]


def test_an_import_warns_of_unknown_audiences(cli: Cli, tmp_path: Path) -> None:
    """A misspelt name would exclude nobody."""
    definition = {"id": "buyers", "product": "shop", "event": "deposit", "within_days": 30}
    assert cli("key", "issue", "shop").returncode == 0
    done(cli("audience", "add", write(tmp_path / "audience.json", definition)))
    targeting = {"audience": {"include": ["buyers", "byers"], "exclude": ["buyer"]}}
    file = write(tmp_path / "a.jsonl", {**CAMPAIGN, "targeting": targeting})
    said = [
        f"warning: campaign c1 {verb} the audience {name!r}, which does not exist: nobody is in it"
        for verb, name in (("includes", "byers"), ("excludes", "buyer"))
    ]
    assert refused(cli("campaign", "import", "--strict", file))[1:] == said
    for command in ("check", "import"):
        result = cli("campaign", command, file)
        assert (result.returncode, result.stderr.splitlines()) == (0, said)


@pytest.mark.parametrize("misspelt", ["demo-casnio", "Demo-Casino"])
def test_a_product_that_does_not_exist_is_named(cli: Cli, tmp_path: Path, misspelt: str) -> None:
    """A misspelt name would switch self-exclusion off, or count nobody's events."""
    issued = cli("key", "issue", "demo-casino")
    assert issued.stderr == "created the product demo-casino\n"
    assert issued.stdout.startswith("sbk_")
    again = cli("key", "issue", "demo-casino", "--preset", "igaming")
    assert (again.returncode, again.stderr) == (0, "")
    right = write(tmp_path / "right.jsonl", {**CAMPAIGN, "product": "demo-casino"})
    wrong = write(tmp_path / "wrong.jsonl", {**CAMPAIGN, "product": misspelt})
    said = [
        f"warning: campaign c1 names the product {misspelt!r}, which does not exist (letter case"
        " matters), so it excludes nobody"
    ]
    for command in ("check", "import"):
        assert cli("campaign", command, "--strict", right).stderr == ""
        strict = cli("campaign", command, "--strict", wrong)
        warned = [line for line in strict.stderr.splitlines() if line.startswith("warning: c")]
        assert (strict.returncode, warned) == (1, said)
        result = cli("campaign", command, wrong)
        assert (result.returncode, result.stderr.splitlines()) == (0, said)
    definition = {"id": "buyers", "product": misspelt, "event": "deposit", "within_days": 30}
    added = cli("audience", "add", write(tmp_path / "audience.json", definition))
    assert added.returncode == 0
    assert added.stderr == (
        f"warning: the product {misspelt!r} does not exist (letter case matters): audiences of"
        " its events have no members\n"
    )


def test_an_import_warns_of_markup_and_strictly_refuses_it(cli: Cli, tmp_path: Path) -> None:
    text = {"id": "t", "media": "banner", "w": 300, "h": 250, "adm": "an advertisement"}
    unknown = {"id": "w", "media": "video", "adm": wrapper("3.0").replace("https", "http")}
    campaigns = [CAMPAIGN, {**CAMPAIGN, "id": "warned", "creatives": [text, unknown]}]
    file = write(tmp_path / "a.jsonl", *campaigns)
    warnings = [
        "creatives[0].adm: is plain text without any HTML: write the markup of the advertisement,"
        " line 1 of the text",
        "creatives[1].adm: <VASTAdTagURI> has an http: address, line 1 of the text; load it over"
        ' HTTPS or set "secure": false',
        "creatives[1].adm: <Impression> has an http: address, line 1 of the text; load it over"
        ' HTTPS or set "secure": false',
        "creatives[1].adm: a wrapper has no duration: state it, or the creative fits no request"
        " that has minduration, maxduration, rqddurs, poddur, mincpmpersec or durfloors; likewise"
        " linear (linearity), skippable (skip: 0), bitrate (minbitrate or maxbitrate), delivery"
        " (delivery), w (boxingallowed: 0)",
    ]
    said = [f"warning: line 2: {warning}" for warning in warnings]
    before = done(cli("campaign", "list"))
    assert refused(cli("campaign", "import", "--strict", file)) == [
        "nothing was imported: --strict treats warnings as errors", *said,
    ]  # fmt: skip
    assert done(cli("campaign", "list")) == before
    result = cli("campaign", "import", file)
    assert (result.returncode, result.stderr.splitlines()) == (0, said)
    wrong = write(tmp_path / "b.jsonl", *campaigns, {**CAMPAIGN, "id": "wrong", "cpm": 0})
    mistake = "line 3: cpm: must be more than 0, found 0"
    assert refused(cli("campaign", "import", wrong)) == [mistake, *said]
    done(cli("campaign", "delete", "warned"))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_files_of_other_systems_are_read(cli: Cli, tmp_path: Path, name: str) -> None:
    """A byte order mark, and lines that end as on Windows."""
    rate = {"currency": "BTC", "date": "2026-01-01", "usd": "87500"}
    for command, noun, entry in (("rates", "rate", rate), ("campaign", "campaign", CAMPAIGN)):
        text = "\ufeff" + json.dumps(entry) + "\r\n\r\n"
        if name.endswith(".json"):
            text = text.replace(", ", ",\r\n")
        (tmp_path / name).write_bytes(text.encode())
        assert done(cli(command, "import", str(tmp_path / name))).startswith(f"1 {noun} imported")


def test_own_rates_are_listed_and_removed(cli: Cli, tmp_path: Path) -> None:
    entries = [
        {"currency": "BTC", "date": "2026-01-01", "usd": "87500"},
        {"currency": "BTC", "date": "2026-01-02", "usd": "88912.45"},
        {"currency": "EUR", "date": "2026-01-01", "usd": "1.05"},
    ]
    assert done(cli("rates", "import", write(tmp_path / "a.jsonl", *entries))) == (
        "3 rates imported\n"
    )
    assert json.loads(done(cli("rates", "list", "--json"))) == entries
    assert done(cli("rates", "list")).splitlines()[1] == "BTC\t2026-01-01\t87500"
    assert done(cli("rates", "remove", "BTC", "--date", "2026-01-01")) == "BTC: 1 rate removed\n"
    assert refused(cli("rates", "remove", "BTC", "--date", "2026-01-01")) == [
        "you have no rate of your own for 'BTC' on 2026-01-01"
    ]
    assert done(cli("rates", "remove", "eur")) == "EUR: 1 rate removed\n"
    assert json.loads(done(cli("rates", "list", "--json"))) == entries[1:2]
