"""What `snapbid audience` refuses, or wants consent for: what opens a campaign to everybody."""

import json
import uuid

import pytest
from support.commands import invoke, succeed

CREATIVE = {"id": "k", "media": "banner", "w": 300, "h": 250, "adm": "<p></p>"}
BUYERS = {"id": "own", "product": "casino", "event": "deposit", "within_days": 30}


@pytest.fixture
def environ(database: str) -> dict[str, str]:
    environ = {"SNAPBID_DATABASE_URL": database}
    succeed(environ, "ssp", "add", "acme")
    succeed(environ, "ssp", "add", "acme-eu", "--canonical", "acme")
    return environ


def members(environ: dict[str, str]) -> int:
    (listed,) = json.loads(succeed(environ, "audience", "list", "--json"))
    return int(listed["members"])


def test_a_file_that_matches_nothing_is_refused(environ: dict[str, str]) -> None:
    own = uuid.uuid4()
    good = f"{own}\nuser acme 1\nuser acme-eu 1\n"
    assert succeed(environ, "audience", "import", "own", "-", input=good) == "own: 2 members\n"
    bad = f"{own}\nann@example.com\n{own},US\nuser acmee 1\n{'ab' * 32}\n"
    for command in (("import", "own"), ("hash",)):
        refused = invoke(environ, "audience", *command, "-", input=bad)
        assert refused.returncode == 1
        said = refused.stderr.splitlines()
        assert [line.partition(": ")[2].partition(": ")[0] for line in said] == [
            "line 2, 3", "line 4", "line 5",
        ]  # fmt: skip
        assert "names an SSP that does not exist" in said[1]
        assert "is a different hash" in said[2]
    assert members(environ) == 2


def test_an_empty_list_needs_confirmation(environ: dict[str, str]) -> None:
    succeed(environ, "audience", "import", "own", "-", input=f"{uuid.uuid4()}\n")
    for nothing in ("", "# none\n\n"):
        refused = invoke(environ, "audience", "import", "own", "-", input=nothing)
        assert (refused.returncode, "has no ids" in refused.stderr) == (1, True)
    assert members(environ) == 1
    succeed(environ, "audience", "import", "own", "-", "--empty", input="")
    assert members(environ) == 0


def test_an_audience_that_campaigns_name_is_removed_with_consent(environ: dict[str, str]) -> None:
    succeed(environ, "audience", "import", "own", "-", input=f"{uuid.uuid4()}\n")
    for name, verb in (("a", "include"), ("b", "exclude")):
        document = {"id": name, "advertiser": "a.example", "cpm": 1, "creatives": [CREATIVE],
                    "targeting": {"audience": {verb: ["own", "other"]}}}  # fmt: skip
        succeed(environ, "campaign", "import", "-", input=json.dumps(document))
    refused = invoke(environ, "audience", "remove", "own")
    assert refused.returncode == 1
    assert "the audience own is used by 2 campaigns (a, b)" in refused.stderr
    assert members(environ) == 1
    assert succeed(environ, "audience", "remove", "own", "--yes") == "own: removed\n"
    refused = invoke(environ, "audience", "remove", "own", "--yes")
    assert (refused.returncode, "there is no audience" in refused.stderr) == (1, True)
    succeed(environ, "audience", "import", "free", "-", input=f"{uuid.uuid4()}\n")
    assert succeed(environ, "audience", "remove", "free") == "free: removed\n"


def test_replaced_audiences_are_named(environ: dict[str, str]) -> None:
    succeed(environ, "key", "issue", "casino")
    succeed(environ, "audience", "import", "own", "-", input=f"{uuid.uuid4()}\n")

    def added(**more: int) -> str:
        return succeed(environ, "audience", "add", "-", input=json.dumps(BUYERS | more))

    assert added() == "own: replaced a list of 1 member\n"
    assert added() == "own: unchanged\n"
    assert added(within_days=7) == "own: replaced an audience of casino's deposit events\n"
