"""`snapbid export`: dashboard, alerts, units, container file, bill of materials (contract 8)."""

from pathlib import Path

import click

from snapbid.cli import console
from snapbid.export import FILES, PRIVATE, MissingExtraError, read


@click.command()
@click.argument("what", type=click.Choice(list(FILES)))
@click.option("--output", "path", metavar="PATH", type=click.Path(path_type=Path),
              help="Write to this file (systemd: into this directory), not to stdout.")  # fmt: skip
def export(what: str, path: Path | None) -> None:
    """Print files for operating: a Grafana dashboard, Prometheus alerts, units, a Containerfile.

    And sbom: a CycloneDX bill of materials of this installation. With --output they are written to
    disk; existing files are not replaced.
    """
    try:
        _export(FILES[what], path)
    except MissingExtraError as error:
        raise console.Refused(str(error)) from error


def _export(names: tuple[str, ...], path: Path | None) -> None:
    if path is None:
        _print(names)
        return
    targets = {path / name if len(names) > 1 else path: name for name in names}
    taken = [str(target) for target in targets if target.exists()]
    if taken:
        raise console.WrongInput(f"{', '.join(taken)}: is there already, and is not replaced")
    try:
        if len(names) > 1:
            path.mkdir(parents=True, exist_ok=True)
        for target, name in targets.items():
            text = read(name)
            _write(target, text, private=name in PRIVATE)
            click.echo(f"wrote {target}")
    except OSError as error:
        raise console.WrongInput(f"{path} cannot be written: {error.strerror}") from error


def _print(names: tuple[str, ...]) -> None:
    for name in names:
        if len(names) > 1:
            click.echo(f"# {name}")
        click.echo(read(name), nl=False)


def _write(path: Path, text: str, *, private: bool) -> None:
    path.touch(0o600 if private else 0o644, exist_ok=False)
    path.write_text(text, encoding="utf-8")
