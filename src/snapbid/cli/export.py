"""`snapbid export`: print files for operators, such as dashboards, alerts and units."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from snapbid.cli import console
from snapbid.cli.shell import ShellCommand
from snapbid.operations.export import FILES, PRIVATE, UnreachableError, read

COMPLETION: Final = "completion"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    cls=ShellCommand,
    examples=[
        "snapbid export systemd --output units",
        "snapbid export alerts --output snapbid-alerts.yml",
        "snapbid export examples --output examples",
        "snapbid export completion > ~/.local/share/bash-completion/completions/snapbid",
    ],
)
@click.argument("what", metavar="WHAT", type=click.Choice([*FILES, COMPLETION]))
@click.option("--output", "path", metavar="PATH", type=click.Path(path_type=Path),
              help="Write to this file (or directory, if there are several).")  # fmt: skip
@click.option("--program", metavar="PATH", type=click.Path(path_type=Path),
              help="For systemd: the snapbid that units start (default: this one).")  # fmt: skip
@click.option("--runbook", metavar="URL", help="For alerts: the URL of the runbook.")
@click.option("--shell", type=click.Choice(SHELLS), help="For completion (default: $SHELL).")
def export(
    what: str,
    path: Path | None,
    program: Path | None,
    runbook: str | None,
    shell: str | None,
) -> None:
    """Print files for operators: dashboard, alerts, units, containers, proxies.

    WHAT is grafana, alerts, systemd, container, compose, nginx, caddy, examples or completion.

    grafana is a dashboard for Grafana, alerts are for Prometheus. systemd units start this snapbid,
    or --program; alerts link to this installation's runbook, or to --runbook.

    compose runs servers, drains, a Redis Cluster and PostgreSQL in containers; examples has
    campaigns of each kind, a request for each, and a page about them; completion is for your shell.

    --output writes to disk, without overwriting existing files.
    """
    for name, of, given in (("program", "systemd", program), ("runbook", "alerts", runbook),
                            ("shell", COMPLETION, shell)):  # fmt: skip
        if given is not None and what != of:
            raise console.WrongInput(f"--{name} can only be given with {of}")
    try:
        if what == COMPLETION:
            _export({COMPLETION: _completion(shell or _own_shell())}, path)
        else:
            texts = {name: read(name, program=program, runbook=runbook) for name in FILES[what]}
            _export(texts, path)
    except UnreachableError as error:
        raise console.Refused(
            f"{error}: install snapbid in a directory such as /opt/snapbid, and export with that"
            " program, or pass its path as --program"
        ) from error


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise console.WrongInput(f"the shell is unknown: pass --shell {' or '.join(SHELLS)}")
    return name


def _completion(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from snapbid.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(main, {}, "snapbid", "_SNAPBID_COMPLETE").source()


def _export(files: Mapping[str, str], path: Path | None) -> None:
    if path is None:
        _print(files)
        return
    targets = {path / name if len(files) > 1 else path: name for name in files}
    taken = [str(target) for target in targets if target.exists()]
    if taken:
        raise console.Refused(
            f"will not overwrite {', '.join(taken)}: choose another path, or remove what is there"
        )
    for target, name in targets.items():
        try:
            if len(files) > 1:
                path.mkdir(parents=True, exist_ok=True)
            _write(target, files[name], private=name in PRIVATE)
        except OSError as error:
            raise console.Refused(f"{path} cannot be written: {error.strerror}") from error
        click.echo(f"wrote {target}")


def _print(files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if len(files) > 1:
            click.echo(f"# {name}")
        click.echo(text, nl=False)


def _write(path: Path, text: str, *, private: bool) -> None:
    path.touch(0o600 if private else 0o644, exist_ok=False)
    path.write_text(text, encoding="utf-8")
