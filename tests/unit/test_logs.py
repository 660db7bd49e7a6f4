"""Log lines: fields by name, as text and as JSON."""

import ast
import json
import logging
import re
from pathlib import Path

import pytest

import snapbid
from snapbid.base.logs import JsonFormatter
from snapbid.base.repeats import RepeatedLog

PACKAGE = Path(snapbid.__file__).parent
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
RESERVED = {"time", "level", "logger", "pid", "message", "traceback", "suppressed"}


def line_of(record: logging.LogRecord) -> dict[str, object]:
    (line,) = JsonFormatter().format(record).splitlines()
    fields: dict[str, object] = json.loads(line)
    return fields


def test_a_json_line_has_the_fields_of_the_text() -> None:
    logger = logging.getLogger("snapbid.some.module")
    fields = {"lost": 3, "path": Path("/a\n\udcff")}  # of no encoding: not for a log of the tests
    record = logger.makeRecord(
        logger.name, logging.WARNING, "", 0, "%(lost)d of %(path)s", (fields,), None
    )
    line = line_of(record)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", str(line.pop("time")))
    assert line == {
        "level": "WARNING",
        "logger": "snapbid.some.module",
        "pid": record.process,
        "message": "3 of /a\n\udcff",
        "lost": 3,
        "path": "/a\n\udcff",
    }


def test_a_traceback_is_one_field(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("of a test")
    except ValueError:
        logging.getLogger("snapbid").exception("failed")
    line = line_of(caplog.records[0])
    assert line["message"] == "failed"
    assert str(line["traceback"]).endswith("\nValueError: of a test")


def test_a_line_of_a_library_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("asyncio").error("%s took %d ms", "it", 7)
    assert line_of(caplog.records[0])["message"] == "it took 7 ms"


def test_a_repeated_line_says_how_many_were_suppressed(caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 1.0, 2.0, 70.0))
    log = RepeatedLog(logging.getLogger("snapbid"), lambda: next(times))
    for shard in range(4):
        log.error("shard %(shard)d", {"shard": shard})
    first, second = map(line_of, caplog.records)
    assert (first["shard"], "suppressed" in first) == (0, False)
    assert (second["shard"], second["suppressed"]) == (3, 2)


def _logs(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in METHODS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in ("logger", "repeated")
    )


def log_lines(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _logs(node)]


# Not by parsing them, which takes long for all.
LOGGING = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if re.search(r"\b(logger|repeated)\.", path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("path", LOGGING, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_log_line_names_its_fields(path: Path) -> None:
    for call in log_lines(path):
        message = " ".join(
            node.value
            for argument in call.args
            if not isinstance(argument, ast.Dict)
            for node in ast.walk(argument)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        names = re.findall(r"%\((\w+)\)", message)
        where = f"line {call.lineno}: {message}"
        assert not RESERVED & set(names), where
        assert len(re.findall(r"%(?!%)", message)) == len(names), where
        keys = {
            key.value
            for argument in call.args
            if isinstance(argument, ast.Dict)
            for key in argument.keys
            if isinstance(key, ast.Constant)
        }
        assert not names or set(names) <= keys, where
        assert not RESERVED & keys, where
