"""How the command line presents itself: help, examples, tables, reasons, completion."""

import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.commands import invoke, succeed

from snapbid.base.reasons import reason, text_of
from snapbid.cli import console
from snapbid.cli.main import main
from snapbid.cli.shell import ShellCommand


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))
    else:
        yield path


def find(path: tuple[str, ...]) -> click.Command:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


COMMANDS = list(leaves(main))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_ends_with_examples_that_parse(path: tuple[str, ...]) -> None:
    command = find(path)
    assert isinstance(command, ShellCommand)
    assert command.examples
    printed = succeed({}, *path, "--help")
    assert all(len(line) <= 80 for line in printed.splitlines())
    for example in command.examples:
        assert f"\n  {example}\n" in printed
        words = shlex.split(example.replace("$(", "").rstrip(")"))
        start = words.index("snapbid") + 1
        assert tuple(words[start : start + len(path)]) == path
        ends = [words.index(mark) for mark in (">", "|") if mark in words[start:]]
        given = words[start + len(path) : min(ends, default=len(words))]
        parser = command.make_parser(click.Context(command))
        parser.parse_args(list(given))  # raises for an option that does not exist


def test_summaries_are_whole() -> None:
    assert COMMANDS
    for path in {(), *(path[:1] for path in COMMANDS if len(path) > 1)}:
        printed = " ".join(succeed({}, *path, "--help").split())
        assert "..." not in printed.replace("[ARGS]...", "").replace("[OPTIONS]...", "")
    assert "the drain" in succeed({}, "--help")
    assert "Exit status" in succeed({}, "--help")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("length", [2, 60, 90])
def test_tables_on_a_terminal_are_not_cut(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    console.print_table(
        ("id", "status", "name", "left"),
        [("x" * length, "active", "not shown", 1.5), ("y\n", "paused", "", None)],
        ("id", "status", "left"),
    )
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["id", "status", "left"]
    assert sum("x" * length in line for line in lines) == 1
    assert max(len(line) for line in lines if "x" * 61 not in line) <= 80
    assert "not shown" not in out.getvalue()
    (row,) = (line for line in lines if "1.5" in line)
    assert row.index("1.5") == lines[0].index("left")
    assert lines[-1].split() == ["y\\n", "paused"]


def test_a_cell_without_a_value_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("day", "bids"), [(None, 0)])
    assert capsys.readouterr().out == "day\tbids\n\t0\n"


def test_numbers_agree_with_their_noun() -> None:
    assert [console.counted(number, "bid") for number in (0, 1, 2, 1000)] == [
        "0 bids", "1 bid", "2 bids", "1,000 bids",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Errno 111] Connect call failed ('127.0.0.1', 5432)", "nothing listens at h:1"),
        ("Error 111 connecting to h:1. Connection refused.", "nothing listens at h:1"),
        ("[Errno -2] Name or service not known", "the host of h:1 is unknown"),
        ('password authentication failed for user "u"', "h:1 rejects the password"),
        ("relation is locked", "relation is locked"),
    ],
)
def test_reasons_are_words(text: str, words: str) -> None:
    assert reason(OSError(text), "postgresql://user:hidden@h:1/db") == words


def test_other_addresses() -> None:
    refused = ConnectionRefusedError(111, "Connection refused")
    assert reason(refused, "unix:///run/a.sock") == "nothing listens at /run/a.sock"
    socket = "postgresql:///db?host=/run/pg&user=u"
    assert reason(FileNotFoundError(2, "No such file"), socket).startswith(
        "nothing listens at /run"
    )
    assert reason(TimeoutError(), "redis://:p@h:6379/0") == "h:6379 does not answer in time"


MISSING = "does not exist or cannot be read"


@pytest.mark.parametrize(
    ("error", "url", "words"),
    [
        (FileNotFoundError(2, "No such file or directory"),
         "postgresql://u:hidden@h:1/d?sslmode=verify-full&sslrootcert=%2Fno%2Fca.pem",
         f"the file /no/ca.pem (sslrootcert) {MISSING}"),
        (FileNotFoundError(2, "No such file or directory"),
         "postgresql:///d?host=/run/pg&sslmode=require&sslcert=/proc/self/exe&sslkey=/no/key.pem",
         f"the file /no/key.pem (sslkey) {MISSING}"),
        (NotADirectoryError(20, "Not a directory"),
         "postgresql://h:1/d?sslmode=require&sslcrl=/dev/null/crl.pem",
         f"the file /dev/null/crl.pem (sslcrl) {MISSING}"),
        (ConnectionError("Error 2 connecting to h:1. No such file or directory."),
         "rediss://:hidden@h:1?ssl_ca_certs=/no/ca.pem&password=hidden",
         f"the file /no/ca.pem (ssl_ca_certs) {MISSING}"),
        (ConnectionError("no sentinel knows the primary: Error 13 connecting. Permission denied."),
         "rediss+sentinel://:hidden@h:1/m?ssl_certfile=/no/cert.pem",
         f"the file /no/cert.pem (ssl_certfile) {MISSING}"),
        (FileNotFoundError(2, "No such file or directory"),  # named by a PGSSL… variable
         "postgresql://u:hidden@h:1/d?sslmode=verify-full",
         "a certificate or key for h:1 does not exist"),
        (FileNotFoundError(2, "No such file or directory", "/no/ca.pem"), "postgresql://h:1/d",
         "/no/ca.pem: No such file or directory"),
        (PermissionError(13, "Permission denied"), "postgresql:///d?host=/run/pg",
         "[Errno 13] Permission denied"),
        (FileNotFoundError(2, "No such file or directory"), "postgresql://u@%2Frun%2Fpg/d",
         "nothing listens at /run/pg: there is no such socket"),
        (ConnectionError("Error 2 connecting to /run/a.sock. No such file or directory."),
         "unix://:hidden@/run/a.sock", "nothing listens at /run/a.sock: there is no such socket"),
    ],
)  # fmt: skip
def test_missing_files_and_sockets_are_told_apart(error: OSError, url: str, words: str) -> None:
    assert reason(error, url) == words


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError("disk full"), "disk full"),
        (TimeoutError("not connected"), "not connected"),
        (TimeoutError(), "no answer"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_every_error_has_a_text(error: OSError, text: str) -> None:
    assert text_of(error) == text


def test_a_stopped_instance_is_explained_by_every_command(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text("{}")
    environ = {"SNAPBID_HOME": str(tmp_path / "home")}
    for command in (
        ["campaign", "list"], ["campaign", "list", "--budgets"], ["campaign", "export"],
        ["ssp", "list"], ["token", "issue", "a"], ["key", "list"], ["audit"], ["drain"],
        ["explain", "a", str(file)], ["golive", "a"], ["events", "replay"], ["ledger", "adopt"],
        ["migrate"],
    ):  # fmt: skip
        done = invoke(environ, *command)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert "no embedded instance is running in " in done.stderr, command
        assert "snapbid up" in done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "snapbid.bash"
    assert "wrote" in succeed(
        {}, "export", "completion", "--shell", "bash", "--output", str(script)
    )
    program = tmp_path / "snapbid"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m snapbid "$@"\n')
    program.chmod(0o755)
    ask = (
        f"source {script}; COMP_WORDS=(snapbid campaign li); COMP_CWORD=2;"
        " _snapbid_completion snapbid; echo ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", ask],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["list"], done.stderr


def test_completion_names_missing_support() -> None:
    done = invoke({"SHELL": "/bin/tcsh"}, "export", "completion")
    assert (done.returncode, done.stderr) == (
        2,
        "the shell is unknown: pass --shell bash or zsh or fish\n",
    )
    assert invoke({}, "export", "alerts", "--shell", "zsh").returncode == 2
