"""Secrets do not leak into logs, errors, process lists, core dumps or readable files."""

import asyncio
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.bystander import BODY, JSON, PATH
from support.processes import descendants, eventually
from support.stack import JWT_SECRET, Stack, connected, run
from support.wire import Wire

from snapbid.base.settings import load
from snapbid.embedded import demo
from snapbid.warehouse import products

SECRET = "PqXk3-secret-of-this-test-and-of-no-other-one"
PASSWORD = "pässwort-of-this-test"


def core_limit(pid: int) -> list[str]:
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max core file size"):
            return line.split()[4:6]
    raise AssertionError


def open_to_others(folder: Path) -> list[Path]:
    """Files and directories that others than the owner may access."""
    paths = [folder, *folder.rglob("*")]
    return [path for path in paths if not path.is_symlink() and path.stat().st_mode & 0o077]


def use_everything(stack: Stack, key: str) -> str:
    """Present secrets everywhere, valid and invalid ones; returns all answers."""
    token = run({**stack.environ}, "token", "issue", "acme").stdout.strip()
    report = "/api/v1/ssp/acme/report?from=x&to=x"
    answers = []
    with Wire(stack.port) as wire:
        assert wire.ask("POST", PATH, JSON, BODY).status == 200
        for authorization in (token, token + "x", SECRET, token[:-20]):
            answers.append(wire.ask("GET", report, {"authorization": f"Bearer {authorization}"}))
        for given in (key, key + "x", key[:-1], SECRET):
            for path in ("/v3/s2s/event", "/v3/s2s/batch", "/v3/other"):
                answers.append(wire.ask("POST", path, {**JSON, "x-api-key": given}, b"{"))
    assert {reply.status for reply in answers} == {400, 401, 404}
    shown = " ".join(f"{reply.headers} {reply.body!r}" for reply in answers)
    return f"{shown} {stack.output} {stack.get('/metrics', ops=True)[1]!r}".replace(token, SECRET)


def test_serving_shows_no_secret_and_hides_its_files(
    start_stack: Callable[..., Stack], database: str, tmp_path: Path
) -> None:
    async def prepare() -> str:
        await demo.seed(database)
        async with connected(database) as connection:
            return await products.issue(connection, "shop")

    key = asyncio.run(prepare())
    (tmp_path / "record").mkdir()
    record = tmp_path / "record" / "bids.jsonl"
    stack = start_stack(
        SNAPBID_JWT_SECRET=SECRET, SNAPBID_RECORD=str(record), SNAPBID_RECORD_SAMPLE="1"
    )
    assert stack.process
    shown = use_everything(stack, key)
    processes = descendants(stack.process.pid)
    assert len(processes) >= 2
    for secret in (SECRET, key, key[:-1]):
        assert secret not in shown
        assert not any(secret in command for command in processes.values())
    for pid in processes:
        assert set(core_limit(pid)) <= {"0", "1"}, processes[pid]
    eventually(record.exists, "the record")
    assert open_to_others(Path(stack.environ["SNAPBID_HOME"])) == []
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    """Whatever the machine's default for core dumps, and even if the shell asks for them."""
    crash = "from snapbid.server.private import keep_private; keep_private(); import os; os.abort()"
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    done = subprocess.run(
        [sys.executable, "-c", crash],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)),
    )
    assert done.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "environ",
    [
        {"SNAPBID_JWT_SECRET": SECRET[:20]},
        {"SNAPBID_JWT_SECRET": SECRET, "SNAPBID_PORT": "x"},
        {"SNAPBID_DATABASE_URL": f"postgresql://u:{PASSWORD}@127.0.0.1:1/x"},
        {"SNAPBID_DATABASE_URL": f"postgresql://127.0.0.1:1/x?user=u&password={PASSWORD}"},
        {"SNAPBID_DATABASE_URL": f"http://u:{PASSWORD}@127.0.0.1:1/x"},
        {"SNAPBID_REDIS_URL": f"rediss://:{PASSWORD}@127.0.0.1:1/x"},
        {"SNAPBID_REDIS_URL": f"nonsense://:{PASSWORD}@127.0.0.1:1/x"},
    ],
    ids=lambda environ: str(list(environ.values())[-1])[:30],
)
def test_no_error_quotes_a_secret(environ: dict[str, str], tmp_path: Path) -> None:
    whole = {"SNAPBID_HOME": str(tmp_path / "home"), **environ}
    for command in (("serve",), ("drain",), ("ssp", "list"), ("migrate",), ("env",)):
        if command == ("drain",) and len(environ) == 1:
            continue  # which waits for its stores
        done = run(whole, *command)
        assert done.returncode in (1, 2), done
        assert "Traceback" not in done.stderr
        for secret in (SECRET, SECRET[:20], PASSWORD):
            assert secret not in done.stdout + done.stderr


def test_settings_hide_secrets_however_they_are_shown() -> None:
    settings = load({"SNAPBID_JWT_SECRET": JWT_SECRET})
    for shown in (repr(settings), str(settings), f"{settings.jwt_secret}", f"{settings!r:s}"):
        assert JWT_SECRET not in shown
