"""SNAPBID_HOME: one private directory with all that an embedded instance keeps.

lock       held by the running owner, with its pid
secret     the signing key's text, made once
env        the running instance's settings, for `snapbid env`
sockets    where the sockets are, when the home's path is too long for them
log/       one file a server
run/       sockets
redis/ postgres/   the data
"""

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from snapbid.embedded.process import POLL_S, EmbeddedError
from snapbid.settings import SECRET_MIN_BYTES, Secret

SOCKET_PATH_MAX = 107  # bytes of sockaddr_un.sun_path, without the final NUL
LONGEST_SOCKET = "postgres/.s.PGSQL.5432"
LOCK_WAIT_S = 1.0  # `running_env` of another process holds the lock for an instant
SOCKETS_PREFIX = "snapbid-"


class Home:
    """The locked home. Entering it makes the directory (0700); leaving it removes the sockets.

    Raises EmbeddedError where it cannot be made, belongs to somebody else or is in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.log = self.path / "log"
        self.run = self.path / "run"
        self.left_behind = False  # whether the owner before was killed with its programs running
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except OSError as error:
            self.close()
            raise EmbeddedError(
                f"SNAPBID_HOME {self.path} cannot be used: {error.strerror}; "
                "choose another directory"
            ) from error
        except EmbeddedError:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            (self.path / "env").unlink(missing_ok=True)
            self._remove_short_sockets()
            os.close(self._lock)
            self._lock = None

    def _open(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._own()
        self.path.chmod(0o700)
        self._lock = self._locked()
        self.left_behind = (self.path / "env").exists()
        (self.path / "env").unlink(missing_ok=True)
        self.log.mkdir(mode=0o700, exist_ok=True)
        self._remove_short_sockets()
        self.run = self._sockets()

    def _own(self) -> None:
        owner, me = self.path.stat().st_uid, os.geteuid()
        if owner == me:
            return
        if me == 0 and not any(self.path.iterdir()):
            os.chown(self.path, 0, 0)
            return
        raise EmbeddedError(
            f"SNAPBID_HOME {self.path} belongs to user {owner} and this is user {me}: "
            "run as that user or choose another directory"
        )

    def _locked(self) -> int:
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                holder = os.pread(file, 32, 0).decode(errors="replace").strip()
                if time.monotonic() > deadline:
                    os.close(file)
                    raise EmbeddedError(
                        f"SNAPBID_HOME {self.path} is in use by process {holder}: stop it, "
                        "or set SNAPBID_HOME to another directory"
                    ) from error
                time.sleep(POLL_S)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        return file

    def _sockets(self) -> Path:
        run = self.path / "run"
        if _fits(run):
            run.mkdir(mode=0o700, exist_ok=True)
            return run
        for parent in (tempfile.gettempdir(), "/tmp", "/run", "/dev/shm"):
            if _fits(Path(parent) / (SOCKETS_PREFIX + "x" * 8)) and os.access(parent, os.W_OK):
                short = Path(tempfile.mkdtemp(prefix=SOCKETS_PREFIX, dir=parent))
                _write_private(self.path / "sockets", str(short))
                return short
        raise EmbeddedError(
            f"no directory has a path short enough for unix sockets (SNAPBID_HOME is {self.path}): "
            "set SNAPBID_HOME or TMPDIR to a shorter one"
        )

    def _remove_short_sockets(self) -> None:
        record = self.path / "sockets"
        try:
            short = Path(record.read_text())
        except FileNotFoundError:
            return
        # What stands in a file decides what is deleted: only what `_sockets` can have made.
        if short.name.startswith(SOCKETS_PREFIX) and short.is_dir() and not short.is_symlink():
            shutil.rmtree(short, ignore_errors=True)
        record.unlink()

    def secret(self) -> Secret:
        """The instance's signing secret: made at the first call, kept from then on."""
        path = self.path / "secret"
        if not path.exists():
            _write_private(path, secrets.token_urlsafe(48))
        text = path.read_text().strip()
        if len(text.encode()) < SECRET_MIN_BYTES:
            raise EmbeddedError(
                f"{path} holds less than {SECRET_MIN_BYTES} bytes: remove it to get a new secret "
                "(tokens signed with the old one stop working), or set SNAPBID_JWT_SECRET"
            )
        return Secret(text)

    def announce(self, environ: Mapping[str, str]) -> None:
        """Write what `running_env` gives, until the home is closed."""
        lines = "".join(f"{name}={value}\n" for name, value in environ.items())
        _write_private(self.path / "env", lines)


def running_env(home: Path) -> dict[str, str] | None:
    """The `SNAPBID_*` settings of the instance that runs in `home`, None when none does.

    Raises EmbeddedError where the home belongs to another user.
    """
    try:
        lock = os.open(home / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # nobody holds it
        except BlockingIOError:
            text = (home / "env").read_text()
        finally:
            os.close(lock)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise EmbeddedError(f"SNAPBID_HOME {home} belongs to another user") from error
    return dict(line.split("=", 1) for line in text.splitlines())


def _fits(run: Path) -> bool:
    return len(os.fsencode(run / LONGEST_SOCKET)) <= SOCKET_PATH_MAX


def _write_private(path: Path, text: str) -> None:
    """Replace `path` at once, readable by its owner alone, on disk when this returns."""
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
