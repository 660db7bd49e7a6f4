"""Chromium over the W3C WebDriver protocol; tests are skipped if it is not installed."""

import base64
import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workload.serving import free_ports

START_S = 60.0
ANSWER_S = 600.0  # a busy machine may take minutes over what axe does with a long page
AXE = Path(sys.prefix, "npm/node_modules/axe-core/axe.min.js")
OF_COLOURS = ", runOnly: ['color-contrast', 'link-in-text-block']"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
KEYS = {"Control": "\ue009", "Enter": "\ue007", "ArrowDown": "\ue015"}


class Browser:
    """A window, opened by `browser`."""

    def __init__(self, port: int, capabilities: dict[str, Any]) -> None:
        self._port = port
        self._session = ""
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{session['sessionId']}"

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """Run a script in the page; returns its value."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def run_until_done(self, script: str) -> Any:
        """Run a script; returns what it calls `done` with."""
        script = f"const done = arguments[arguments.length - 1]; {script}"
        return self._ask("POST", "/execute/async", {"script": script, "args": []})

    def violations(self) -> list[str]:
        """What axe objects to on the page, light or dark: scheme, rule, and the first element that
        breaks it. The page stays as the second scheme shows it, of which only colours are checked.
        """
        if not AXE.exists():
            pytest.skip("axe-core is not installed (npm): make .venv/.npm")
        self.run(AXE.read_text(encoding="utf-8"))
        broken = []
        for scheme, rules in (("light", ""), ("dark", OF_COLOURS)):
            self.prefer(scheme)
            found = self.run_until_done(
                f"axe.run({{ resultTypes: ['violations']{rules} }})"
                ".then((result) => done(result.violations), done)"
            )
            broken += [f"{scheme}, {each['id']}: {each['nodes'][0]['html']}" for each in found]
        return broken

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self._strike([key for letter in text for key in (("keyDown", letter), ("keyUp", letter))])

    def paste(self, text: str) -> None:
        """Put a text into what has the focus, at once: a long page takes a while over each key."""
        self._command("Input.insertText", text=text)

    def press(self, *names: str) -> None:
        """Press keys together, each a letter or a name of KEYS."""
        keys = [KEYS.get(name, name) for name in names]
        self._strike([("keyDown", key) for key in keys] + [("keyUp", key) for key in keys[::-1]])

    def _strike(self, keys: list[tuple[str, str]]) -> None:
        strokes = [{"type": kind, "value": key} for kind, key in keys]
        keyboard = {"type": "key", "id": "keyboard", "actions": strokes}
        self._ask("POST", "/actions", {"actions": [keyboard]})

    def enter(self, frame: int | None) -> None:
        """Run scripts in a frame of the page from now on; None: in the page."""
        self._ask("POST", "/frame", {"id": frame})

    def prefer(self, scheme: str) -> None:
        """Show pages `light` or `dark` from now on."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._command("Emulation.setEmulatedMedia", features=[feature])
        assert self.run(f"return matchMedia('(prefers-color-scheme: {scheme})').matches")

    def _command(self, name: str, **parameters: Any) -> None:
        """Give a command of the DevTools protocol."""
        self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def problems(self) -> list[str]:
        """New messages of the console: errors, and violations of the page's policy."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self) -> None:
        self._ask("DELETE", "")

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        with contextlib.closing(client):
            body = None if document is None else json.dumps(document)
            client.request(method, self._session + path, body)
            answer = json.loads(client.getresponse().read())["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer


@contextlib.contextmanager
def browser(width: int, height: int, *, dark: bool = False) -> Iterator[Browser]:
    """A window of a given size; a narrow one emulates a phone."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium-driver)")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="snapbid-browser-") as folder:
        options: dict[str, Any] = {
            "binary": program,
            "args": [
                *FLAGS,
                OFFLINE,
                f"--user-data-dir={folder}",
                f"--window-size={width},{height}",
            ],
        }
        if dark:
            options["args"].append("--force-dark-mode")
        if width < 600:
            metrics = {"width": width, "height": height, "pixelRatio": 1, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await_driver(port)
            window = Browser(
                port,
                {
                    "goog:chromeOptions": options,
                    "goog:loggingPrefs": {"browser": "ALL"},
                    "timeouts": {"script": round(ANSWER_S * 1000)},
                },
            )
            try:
                yield window
            finally:
                window.close()
        finally:
            process.terminate()
            process.wait()


def _await_driver(port: int) -> None:
    deadline = time.monotonic() + START_S
    while True:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(client), contextlib.suppress(OSError, http.client.HTTPException):
            client.request("GET", "/status")
            client.getresponse().read()
            return
        assert time.monotonic() < deadline, "chromedriver does not start"
        time.sleep(0.02)
