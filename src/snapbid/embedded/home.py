"""SNAPBID_HOME: the private directory of an embedded instance.

lock       held by the running owner; contains its pid
secret     the signing secret, created once
ops-token  the token of the private port, created once if needed
env        the running instance's settings, for `snapbid env`
sockets    path of the socket directory, if the home's path is too long for sockets
programs   path of a copy of PostgreSQL's programs, if its account cannot reach them
log/       one file per server
run/       sockets
redis/, postgres/
           the data
"""

import fcntl
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from snapbid.base.errors import is_disk_full
from snapbid.base.setting_values import SECRET_MIN_BYTES, TOKEN_MIN_CHARACTERS, Secret
from snapbid.embedded.process import POLL_S, EmbeddedError

SOCKET_PATH_MAX = 107  # bytes of sockaddr_un.sun_path, without the final NUL
LONGEST_SOCKET = "postgres/.s.PGSQL.5432"
LOCK_WAIT_S = 1.0  # another process may hold the lock for an instant, in `running_env`
ELSEWHERE = ("sockets", "programs")  # files with the paths of directories outside the home
ELSEWHERE_PREFIX = "snapbid-"
# Allowed in a home without a lock: a restored backup, and the directory of a new file system.
UNMARKED = frozenset({"redis", "postgres", "lost+found"})


class Home:
    """The home: a context manager that creates the directory (0700) and holds its lock.

    Raises EmbeddedError if the directory cannot be created, belongs to another user, is in use, or
    has files that are not Snapbid's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.log = self.path / "log"
        self.run = self.path / "run"
        self.left_behind = False  # whether the previous owner was killed with programs running
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self._open()
        except OSError as error:
            self.close()
            raise EmbeddedError(unusable(self.path, error)) from error
        except EmbeddedError:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            (self.path / "env").unlink(missing_ok=True)
            self._remove_elsewhere()
            os.close(self._lock)
            self._lock = None

    def _open(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_owner()
        self._check_files()
        self.path.chmod(0o700)
        self._lock = self._acquire_lock()
        self.left_behind = (self.path / "env").exists()
        (self.path / "env").unlink(missing_ok=True)
        self.log.mkdir(mode=0o700, exist_ok=True)
        self._remove_elsewhere()
        self.run = self._socket_directory()

    def _check_owner(self) -> None:
        owner, me = self.path.stat().st_uid, os.geteuid()
        if owner == me:
            return
        if me == 0 and not any(self.path.iterdir()):
            os.chown(self.path, 0, 0)
            return
        raise EmbeddedError(
            f"SNAPBID_HOME {self.path} belongs to user {owner}, but you are user {me}: "
            "run as that user, or set SNAPBID_HOME to another directory"
        )

    def _check_files(self) -> None:
        """Refuse a directory with other files, such as /var, which must not be made private."""
        names = sorted(entry.name for entry in self.path.iterdir())
        if UNMARKED.issuperset(names) or _is_marked(self.path):
            return
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        raise EmbeddedError(
            f"SNAPBID_HOME {self.path} has files that are not Snapbid's ({shown}): "
            "set SNAPBID_HOME to a new or an empty directory"
        )

    def _acquire_lock(self) -> int:
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

    def _socket_directory(self) -> Path:
        run = self.path / "run"
        if _fits(run):
            run.mkdir(mode=0o700, exist_ok=True)
            return run
        for parent in (tempfile.gettempdir(), "/tmp", "/run", "/dev/shm"):
            if _fits(Path(parent) / (ELSEWHERE_PREFIX + "x" * 8)) and os.access(parent, os.W_OK):
                return self.make_elsewhere("sockets", parent)
        raise EmbeddedError(
            f"no directory has a path short enough for unix sockets (SNAPBID_HOME is {self.path}): "
            "set SNAPBID_HOME or TMPDIR to a shorter path"
        )

    def make_elsewhere(self, record: str, parent: str) -> Path:
        """Create a directory in `parent`, and store its path in the file `record`.

        Both are removed when the home is closed.
        """
        path = Path(tempfile.mkdtemp(prefix=ELSEWHERE_PREFIX, dir=parent))
        write_private(self.path / record, str(path))
        return path

    def _remove_elsewhere(self) -> None:
        for record in map(self.path.joinpath, ELSEWHERE):
            try:
                path = Path(record.read_text())
            except FileNotFoundError:
                continue
            # A file's content decides what is deleted, so only what `make_elsewhere` creates is.
            if path.name.startswith(ELSEWHERE_PREFIX) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            record.unlink()

    def _kept(self, name: str, size: int) -> str:
        """Return the text of a private file, which is filled with random text on the first call."""
        path = self.path / name
        if not path.exists():
            write_private(path, secrets.token_urlsafe(size))
        return path.read_text().strip()

    def secret(self) -> Secret:
        """Return the instance's signing secret, created on the first call.

        Raises EmbeddedError if the stored secret is too short.
        """
        text = self._kept("secret", 48)
        if len(text.encode()) < SECRET_MIN_BYTES:
            raise EmbeddedError(
                f"{self.path / 'secret'} has fewer than {SECRET_MIN_BYTES} bytes: remove it to "
                "get a new secret (tokens signed with the old one stop working), or set "
                "SNAPBID_JWT_SECRET"
            )
        return Secret(text)

    def ops_token(self) -> Secret:
        """Return the token of the private port, created on the first call.

        Raises EmbeddedError if the stored token is too short.
        """
        text = self._kept("ops-token", 32)
        if len(text) < TOKEN_MIN_CHARACTERS:
            raise EmbeddedError(
                f"{self.path / 'ops-token'} has fewer than {TOKEN_MIN_CHARACTERS} characters: "
                "remove it to get a new token, or set SNAPBID_OPS_TOKEN"
            )
        return Secret(text)

    def announce(self, environ: Mapping[str, str]) -> None:
        """Publish settings, which `running_env` returns until the home is closed."""
        lines = "".join(f"{name}={value}\n" for name, value in environ.items())
        write_private(self.path / "env", lines)


def running_env(home: Path) -> dict[str, str] | None:
    """Return the `SNAPBID_*` settings of the instance running in `home`; None if none is running.

    Raises EmbeddedError if the home belongs to another user.
    """
    try:
        lock = os.open(home / "lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # no instance holds it
        except BlockingIOError:
            text = (home / "env").read_text()
        finally:
            os.close(lock)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise EmbeddedError(
            f"SNAPBID_HOME {home} belongs to another user: run as that user, or set SNAPBID_HOME to"
            " another directory"
        ) from error
    return dict(line.split("=", 1) for line in text.splitlines())


def unusable(home: Path, error: OSError) -> str:
    """Return the error message for a home that cannot be read or written, with a remedy."""
    remedy = "free some space" if is_disk_full(error) else "set it to another directory"
    return f"SNAPBID_HOME {home} cannot be used: {error.strerror}: {remedy}"


def _is_marked(home: Path) -> bool:
    """Whether `up` or `serve` has used this home before."""
    lock = home / "lock"
    is_lock = lock.is_file() and not lock.is_symlink()
    return is_lock or any(re.fullmatch(r"serve-\d+", entry.name) for entry in home.iterdir())


def _fits(run: Path) -> bool:
    return len(os.fsencode(run / LONGEST_SOCKET)) <= SOCKET_PATH_MAX


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically, synced to disk and readable only by its owner."""
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
