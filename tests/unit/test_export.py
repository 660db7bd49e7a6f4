"""What `snapbid export` writes: current forms, and no metric or label that does not exist."""

import json
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from click.testing import CliRunner

import snapbid
from snapbid.base.addresses import parse
from snapbid.base.risks import NAMES
from snapbid.base.settings import VARIABLES, load, require_serving
from snapbid.cli.main import main
from snapbid.drain.run import SETTINGS as DRAIN_SETTINGS
from snapbid.metrics import DEFINITIONS
from snapbid.operations.export import FILES, UnreachableError, check_program, read

PACKAGE = Path(*snapbid.__path__)
PROGRAM = Path("/opt/snapbid/bin/snapbid")
PROGRAM_OF = {"systemd": ("--program", str(PROGRAM))}
TARGET_LABELS = {"instance", "job"}  # those that Prometheus adds
VARIABLE = re.compile(r"\$\{?(__rate_interval|datasource|ssp)\}?")
VALUES = {"__rate_interval": "5m", "ssp": ".*"}


def dashboard() -> Any:
    return json.loads(read("snapbid-dashboard.json"))


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(read("alerts.yml"))["groups"] for rule in group["rules"]
    ]


def panels() -> Iterator[dict[str, Any]]:
    for panel in dashboard()["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions() -> list[str]:
    of_panels = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    filled = [VARIABLE.sub(lambda match: VALUES[match[1]], expr) for expr in of_panels]
    return filled + [rule["expr"] for rule in rules()]


def labels_of(name: str) -> set[str] | None:
    """The labels of a sample, None for one that our page does not have."""
    if name == "up":
        return TARGET_LABELS
    for suffix, more in (("_bucket", {"le"}), ("_sum", set()), ("_count", set()), ("", set())):
        definition = DEFINITIONS.get(name.removesuffix(suffix))
        if definition is None or not name.endswith(suffix):
            continue
        if (definition.kind == "histogram") == bool(suffix):
            return {*definition.labels, *more, *TARGET_LABELS}
    return None


@pytest.mark.parametrize("text", expressions())
def test_expressions_are_promql_over_metrics_that_exist(text: str) -> None:
    selectors: list[promql_parser.VectorSelector] = []
    groupings: list[set[str]] = []

    def collect(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            groupings.append(set(node.modifier.labels))

    promql_parser.walk(promql_parser.parse(text), pre_visit=collect)
    assert selectors
    known: set[str] = set()
    for selector in selectors:
        assert selector.name is not None
        labels = labels_of(selector.name)
        assert labels is not None, f"{selector.name} is no metric"
        assert {matcher.name for matcher in selector.matchers.matchers} <= labels
        known |= labels
    for grouping in groupings:
        assert grouping <= known


def test_expression_check_can_fail() -> None:
    for wrong in ("rate(snapbid_nothing_total[5m])", 'snapbid_store_up{ssp="a"}',
                  "sum by (le) (snapbid_bid_seconds)"):  # fmt: skip
        with pytest.raises(AssertionError):
            test_expressions_are_promql_over_metrics_that_exist(wrong)
    with pytest.raises(ValueError, match="unclosed"):
        test_expressions_are_promql_over_metrics_that_exist("sum(")


OUTCOMES = re.compile(r'outcome=~?"([^"]+)"')


def test_outcomes_named_in_expressions_exist() -> None:
    from snapbid.base import errors
    from snapbid.bidding.notice import OUTCOMES as OF_NOTICES
    from snapbid.bidding.reasons import Reason

    codes = {problem.code for problem in vars(errors).values() if hasattr(problem, "code")}
    known = {"bid", "unsigned", *(reason.value for reason in Reason), *codes, *OF_NOTICES.values()}
    named = {outcome for text in expressions() for outcomes in OUTCOMES.findall(text)
             for outcome in outcomes.split("|")}  # fmt: skip
    assert named
    assert named <= known


def test_each_outcome_of_a_notice_is_shown_and_those_that_count_nothing_raise_an_alert() -> None:
    from snapbid.bidding.notice import OUTCOMES as OF_NOTICES

    outcomes = {*OF_NOTICES.values(), "unsigned"}
    script = (PACKAGE / "operations" / "dashboard" / "assets" / "ops.js").read_text()
    columns = re.search(r"function notices.*?columns = (\[.*?\])", script, re.DOTALL)
    assert columns is not None
    assert set(json.loads(columns[1])) == outcomes
    (unknown,) = (rule["expr"] for rule in rules() if rule["alert"] == "SnapbidNoticesUnknown")
    assert set(OUTCOMES.findall(unknown)[0].split("|")) == {"unknown", "unsigned"}
    readme = (PACKAGE / "server" / "README.md").read_text()
    (row,) = re.findall(r"^\| `snapbid_notices_total` .*", readme, re.MULTILINE)
    for text in (row, DEFINITIONS["snapbid_notices_total"].help):
        assert outcomes <= set(re.findall(r"\w+", text))


def test_the_dashboard_has_the_form_of_grafana_11() -> None:
    board = dashboard()
    assert board["schemaVersion"] == 39
    assert board["id"] is None
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not cells & taken, f"{panel['title']} lies on another"
        taken |= cells
        if panel["type"] != "row":
            assert panel["type"] in {requirement["id"] for requirement in board["__requires"]}
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    used = set(VARIABLE.findall(json.dumps(board)))
    assert used - set(VALUES) == {"datasource"}
    variables = {variable["name"] for variable in board["templating"]["list"]}
    assert variables == {"datasource", "ssp"}


def test_alert_rules_have_the_form_of_prometheus() -> None:
    document = yaml.safe_load(read("alerts.yml"))
    assert set(document) == {"groups"}
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert set(rule["labels"]) == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        if "for" in rule:
            promql_parser.parse_duration(rule["for"])
        shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert shown <= TARGET_LABELS | set(re.findall(r"\w+", rule["expr"]))
        if "by (instance" in rule["expr"]:
            assert "{{ $labels.instance }}" in rule["annotations"]["summary"], rule["alert"]


RISK = re.compile(r'snapbid_store_risk\{risk([=!]~)"([^"]+)"\}')
KINDS = {
    "SnapbidStoreVolatile": {
        "replicas", "promotion", "appendonly", "eviction", "appendfsync", "fsync",
        "synchronous_commit", "full_page_writes",
    },
    "SnapbidStoreReadOnly": {
        "replica", "aof_write", "rdb_write", "memory", "format", "standby", "read_only", "schema",
    },
    "SnapbidStoreUnsupported": {"ledger", "permission", "arrangement", "version"},
}  # fmt: skip


def test_each_risk_raises_the_one_alert_that_describes_it() -> None:
    raised: dict[str, set[str]] = {}
    for rule in rules():
        for operator, pattern in RISK.findall(rule["expr"]):
            raised[rule["alert"]] = {
                name
                for name in {name for names in NAMES.values() for name in names}
                if bool(re.fullmatch(pattern, name)) == (operator == "=~")
            }
    assert raised == KINDS


def test_each_alert_has_its_section_in_the_runbook() -> None:
    page = Path(read("alerts.yml").partition('runbook_url: "file://')[2].partition("#")[0])
    sections = re.findall(r"^## (\w+)\n\n(\S.*)", page.read_text(), re.MULTILINE)
    assert [title for title, _ in sections] == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"{page.as_uri()}#{rule['alert'].lower()}"


def test_alerts_can_link_to_another_runbook() -> None:
    status, printed = export("alerts", "--runbook", "https://wiki.example/snapbid")
    assert status == 0
    urls = [rule["annotations"]["runbook_url"] for group in yaml.safe_load(printed)["groups"]
            for rule in group["rules"]]  # fmt: skip
    assert urls == [f"https://wiki.example/snapbid#{rule['alert'].lower()}" for rule in rules()]


def test_prometheus_takes_the_rules_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    recorded = [{"record": f"a:{number}", "expr": text}
                for number, text in enumerate(expressions())]  # fmt: skip
    documents = {"alerts": read("alerts.yml"),
                 "all": yaml.safe_dump({"groups": [{"name": "all", "rules": recorded}]}),
                 "wrong": read("alerts.yml").replace("rate(", "rote(")}  # fmt: skip
    verdicts = {}
    for name, text in documents.items():
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            [promtool, "check", "rules", tmp_path / name], capture_output=True, text=True
        )
        verdicts[name] = done.returncode == 0, done.stderr
    assert verdicts["alerts"] == verdicts["all"] == (True, "")
    assert not verdicts["wrong"][0]


TROUBLES = [  # a series, its values on a machine without and with a problem, the alert
    ('snapbid_store_up{store="redis"', "1x20", "0x20", "SnapbidRedisUnavailable"),
    ('snapbid_store_up{store="warehouse"', "1x20", "0x20", "SnapbidWarehouseUnavailable"),
    ('snapbid_bid_seconds_bucket{le="0.05"', "0+90x20", "0x20", "SnapbidSlow"),
    ('snapbid_bid_seconds_bucket{le="0.1"', "0+90x20", "0+9x20", "SnapbidSlow"),
    ('snapbid_bid_seconds_bucket{le="+Inf"', "0+90x20", "0+9x20", "SnapbidSlow"),
    ('snapbid_http_requests_total{route="report",status="500"', "0x20", "0+9x20",
     "SnapbidInternalErrors"),
    ('snapbid_event_requests_total{code="UNAVAILABLE"', "0x20", "0+9x20", "SnapbidEventsRefused"),
    ('snapbid_spool_bytes{job="snapbid"', "0x20", "9x20", "SnapbidNoticesSpooled"),
    ('snapbid_auction_log_lost_total{job="snapbid"', "0x20", "0+9x20", "SnapbidAuctionLogLost"),
    ('snapbid_auction_log_spool_bytes{job="snapbid"', "0x20", "3e8x20", "SnapbidAuctionLogBehind"),
]  # fmt: skip


def test_alerts_of_a_machine_name_it(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    (tmp_path / "alerts.yml").write_text(read("alerts.yml"))
    series = [
        {"series": f'{name},instance="{machine}"}}', "values": values}
        for name, *by_machine, _ in TROUBLES
        for machine, values in zip(("m1", "m2"), by_machine, strict=True)
    ]
    fired = [{"labels": f'{{alertname="{alert}",instance="m2"}}', "value": 1}
             for alert in sorted({alert for *_, alert in TROUBLES})]  # fmt: skip
    question = 'count by (alertname, instance) (ALERTS{alertstate="firing"})'
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [
        {"expr": question, "eval_time": "15m", "exp_samples": fired}
    ]}]  # fmt: skip
    (tmp_path / "tests.yml").write_text(
        yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": tests})
    )
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    text = " ".join(expressions())
    assert {name for name in DEFINITIONS if name not in text} == {
        "snapbid_catalog_age_seconds",
        "snapbid_catalog_bases_total",
        "snapbid_catalog_campaigns",
        "snapbid_drain_counters_total",
        "snapbid_drain_rounds_total",
        "snapbid_restricted_requests_total",
    }


def export(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["export", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("what", [what for what in FILES if what != "examples"])
def test_prints_without_an_output_option(what: str) -> None:
    status, printed = export(what, *PROGRAM_OF.get(what, ()))
    assert status == 0
    for name in FILES[what]:
        assert read(name, program=PROGRAM) in printed
    assert "@" not in re.sub(r"@(system-service|privileged|postgres/|10\.)", "", printed)


def test_output_is_written_and_overwrites_nothing(tmp_path: Path) -> None:
    target = tmp_path / "snapbid.json"
    assert export("grafana", "--output", str(target)) == (0, f"wrote {target}\n")
    assert target.read_text() == read("snapbid-dashboard.json")
    target.write_text("mine")
    status, said = export("grafana", "--output", str(target))
    assert (status, said.count("\n")) == (1, 1)
    assert target.read_text() == "mine"
    status, said = export("alerts", "--output", str(tmp_path / "none" / "alerts.yml"))
    assert (status, said.count("\n"), "Traceback" in said) == (1, 1, False)


def test_units_are_written_with_their_settings_kept_private(tmp_path: Path) -> None:
    folder = tmp_path / "units"
    assert export("systemd", *PROGRAM_OF["systemd"], "--output", str(folder))[0] == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES["systemd"])
    named: dict[str, set[str]] = {}
    for file in ("snapbid.env", "snapbid-serve.env"):
        assert stat.S_IMODE((folder / file).stat().st_mode) == 0o600
        lines = (folder / file).read_text().splitlines()
        named[file] = {line.partition("=")[0] for line in lines if not line.startswith("#")}
        assert named[file] <= set(VARIABLES.values())
        filled = (folder / file).read_text().replace("''", "'s://u:a$b@h/d?x=1&y=2#z'")
        shell = ["sh", "-c", f"set -a; {filled}\nenv"]
        read_back = subprocess.check_output(shell, text=True, env={}).splitlines()
        of_urls = [line for line in filled.splitlines() if line.endswith("'")]
        assert of_urls, "values that a shell must not read"
        assert {line.replace("'", "") for line in of_urls} <= set(read_back)
    assert named["snapbid.env"] <= {VARIABLES[field] for field in DRAIN_SETTINGS}
    secret = "EnvironmentFile=/etc/snapbid/snapbid-serve.env\n"
    assert secret in (folder / "snapbid-serve.service").read_text()
    assert secret not in (folder / "snapbid-drain.service").read_text()
    for name in ("serve", "drain"):
        unit = (folder / f"snapbid-{name}.service").read_text()
        assert "\nStartLimitIntervalSec=0\n" in unit.partition("[Service]")[0]
        assert f"ExecStart={PROGRAM} {name}\n" in unit
        assert "EnvironmentFile=/etc/snapbid/snapbid.env\n" in unit
        for option in ("NoNewPrivileges=yes", "ProtectSystem=strict", "MemoryDenyWriteExecute=yes",
                       "CapabilityBoundingSet=", "LimitCORE=0"):  # fmt: skip
            assert f"{option}\n" in unit


def compose() -> Any:
    text = read("compose.yml")
    values = {"SNAPBID_JWT_SECRET": "s" * 32, "SNAPBID_OPS_TOKEN": "t" * 32,
              "SNAPBID_BASE_URL": "https://bid.example"}  # fmt: skip
    return yaml.safe_load(re.sub(r"\$\{(\w+):\?[^}]*\}", lambda m: values.get(m[1], "p"), text))


def test_compose_file_refers_to_what_it_defines() -> None:
    document = compose()
    services = document["services"]
    assert {name.rpartition("-")[0] or name for name in services} == {
        "postgres", "redis", "migrate", "serve", "drain"}  # fmt: skip
    assert [sum(name.startswith(f"{part}-") for name in services)
            for part in ("serve", "drain", "redis")] == [2, 2, 7]  # fmt: skip
    used = set()
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        used |= {volume.partition(":")[0] for volume in service.get("volumes", [])}
    assert used == set(document["volumes"])
    addresses = {
        service["networks"]["snapbid"]["ipv4_address"]
        for name, service in services.items()
        if name.startswith("redis-") and name != "redis-form"
    }
    formed = services["redis-form"]["command"][-1]
    assert set(re.findall(r"[\d.]+(?=:6379)", formed)) == addresses
    assert len(addresses) == 6
    nodes = parse(services["serve-1"]["environment"]["SNAPBID_REDIS_URL"]).nodes
    assert {host for host, _ in nodes} <= addresses


@pytest.mark.parametrize("name", ["migrate", "serve-1", "serve-2", "drain-1", "drain-2"])
def test_the_settings_of_the_compose_file_are_taken(name: str) -> None:
    service = compose()["services"][name]
    settings = load(service["environment"])
    assert main.commands[service["command"][0]]
    if name.startswith("serve"):
        require_serving(settings)
    else:
        assert set(service["environment"]) <= {VARIABLES[field] for field in DRAIN_SETTINGS}


def test_a_server_without_redis_counts_as_healthy_and_keeps_notices() -> None:
    readme, production = (
        (PACKAGE / "server" / page).read_text() for page in ("README.md", "PRODUCTION.md")
    )
    assert "/healthz" in compose()["services"]["serve-1"]["healthcheck"]["test"][-1]
    assert "Load balancers and readiness probes check `/healthz`" in readme
    assert re.search(r"\*\*Load balancer\*\*.*: check `/healthz`, not `/readyz`", production)


@pytest.mark.parametrize("place", ["/root/.venv", "/home/jo/snapbid/.venv", "/tmp/x", "/var/tmp/x"])
def test_units_name_only_visible_programs(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "units"
    status, said = export("systemd", "--program", f"{place}/bin/snapbid", "--output", str(folder))
    assert (status, said.count("\n"), folder.exists()) == (1, 1, False)
    assert "which is hidden from the systemd units" in said
    assert "--program" in said


@pytest.mark.parametrize("place", ["/opt/my snapbid", "/opt/50%", "/opt/$HOME", "/opt/a'b"])
def test_units_name_only_programs_that_systemd_reads_as_written(place: str) -> None:
    status, said = export("systemd", "--program", f"{place}/snapbid")
    assert status == 1
    assert "has a character that systemd would take for syntax" in said


def test_units_name_the_program_by_its_full_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    text = read("snapbid-serve.service", program=Path("snapbid/bin/snapbid"))
    assert "ExecStart=/usr/snapbid/bin/snapbid serve" in text


def test_units_name_only_accessible_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapbid.operations.export.HIDDEN", ())
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o711)
    closed, script = tmp_path / "closed", tmp_path / "snapbid"
    closed.mkdir(mode=0o700)
    for path, mode, why in (
        (closed / "snapbid", 0o755, f"{closed} is not accessible"),
        (script, 0o700, f"{script} is not accessible"),
        (script, 0o755, None),
    ):
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
        if why is None:
            check_program(path)
        else:
            with pytest.raises(UnreachableError, match=why):
                check_program(path)
    (closed / "python").touch(0o755)
    script.write_text(f"#!{closed}/python -I\n")
    with pytest.raises(UnreachableError, match=f"{closed} is not accessible"):
        check_program(script)


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    export("systemd", *PROGRAM_OF["systemd"], "--output", str(tmp_path / "units"))
    stand_in = tmp_path / "snapbid"
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    units = sorted((tmp_path / "units").glob("*.service"))
    for unit in units:
        unit.write_text(unit.read_text().replace(str(PROGRAM), str(stand_in)))
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_names_what_exists() -> None:
    text = read("Containerfile")
    root = Path(__file__).parents[2]
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in line.split():
            assert (root / name).exists(), name
    assert set(re.findall(r"SNAPBID_[A-Z_]+", text)) <= set(VARIABLES.values())
    assert not re.search(r"^USER (root|0)", text, re.MULTILINE)


def test_the_container_file_names_no_environment_file_of_systemd() -> None:
    head = read("Containerfile").partition("\nARG")[0]
    named = set(re.findall(r"--env-file (\S+)", head))
    assert named
    assert not named & set(FILES["systemd"])
    assert "without quotes" in head
