"""The examples of the page for event partners, run as they are written against a server."""

import re
import shutil
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from support import sending
from support.commands import shell
from support.processes import eventually
from support.stack import Stack

PAGE = files("snapbid.events").joinpath("README.md").read_text(encoding="utf-8")
PARTNERS, OPERATOR = PAGE.split("\n## For the operator\n")
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATUS = re.compile(r"^# (\d{3})\b", re.MULTILINE)
SETUP, *EXAMPLES = SHELL.findall(PARTNERS)

SHOWN = "curl() { command curl -w '\\n<%{http_code}>\\n' \"$@\"; }\n"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def test_the_examples_for_partners(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = start_stack()
    key = sending.issue(database, "demo-casino", "igaming")
    sending.await_key(stack.port, key)
    now = f"{int(time.time())}000"
    environ = {**stack.environ, "BASE": stack.base_url, "KEY": key, "NOW": now}
    output = shell(SHOWN + "\n".join(EXAMPLES), environ, tmp_path)
    expected = [status for example in EXAMPLES for status in STATUS.findall(example)]
    assert expected.count("202") >= 3
    assert re.findall(r"<(\d{3})>", output) == expected
    digests = re.findall(r"sha256sum +# ([0-9a-f]{64})", PARTNERS)
    assert digests
    assert [digest for digest in digests if digest not in output] == []


def test_the_examples_for_the_operator(
    database: str, start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = start_stack()
    examples = SHELL.findall(OPERATOR)
    output = shell(
        SHOWN + "\n".join(text for text in examples if "psql" not in text), stack.environ, tmp_path
    )
    assert "2 rates imported" in output
    keys = [line for line in output.splitlines() if line.startswith("sbk_")]
    assert len(keys) == 2
    shown = "\n".join(text for text in examples if "psql" in text)
    queries = re.findall(r'-c "(.*?)"$', shown, re.MULTILINE | re.DOTALL)
    assert len(queries) == shown.count("psql") > 0
    for query in queries:
        sending.rows(database, query)


def test_the_setup_gives_a_key_that_is_accepted(
    start_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = start_stack()
    assert SETUP.splitlines()[0].endswith("$(.venv/bin/snapbid env)")
    script = "\n".join(SETUP.splitlines()[1:])
    environ = {**stack.environ, "SNAPBID_BASE_URL": stack.base_url}
    key = shell(SHOWN + f'{script}\necho "$KEY"', environ, tmp_path).strip()
    eventually(
        lambda: sending.send(stack.port, sending.SINGLE, {}, key).status == 400, "the new key"
    )
