"""Firefox without a head, for the tests of pages: driven by Marionette, its own remote protocol, since Playwright's is
not that of the system's Firefox. A message is its length, a colon, and JSON."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

PREFS = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.webgpu.enabled": True,
    "gfx.webgpu.ignore-blocklist": True,
    "javascript.options.wasm_js_promise_integration": True,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}
STARTING = 120  # seconds


def firefox_path() -> str | None:
    """The system's Firefox, if there is one."""
    return os.environ.get("LIVESHAPE_FIREFOX") or shutil.which("firefox") or shutil.which("firefox-esr")


class Firefox:
    """A session with one page."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._count = connection, 0
        self._file = connection.makefile("rb")
        self._message()  # its greeting
        self._call("WebDriver:NewSession", {"capabilities": {}})
        self._call("WebDriver:SetTimeouts", {"script": 3_600_000, "pageLoad": 600_000})

    def _message(self) -> Any:
        digits = b""
        while (letter := self._file.read(1)) != b":":
            if not letter:
                raise ConnectionError("Firefox has closed the connection")
            digits += letter
        return json.loads(self._file.read(int(digits)))

    def _call(self, name: str, given: Mapping[str, Any]) -> Any:
        self._count += 1
        text = json.dumps([0, self._count, name, given])
        self._connection.sendall(f"{len(text.encode())}:{text}".encode())
        _, number, error, result = self._message()
        assert number == self._count
        if error:
            raise RuntimeError(f"{name}: {error['error']}: {error['message']}")
        return result

    def goto(self, address: str) -> None:
        """Open an address."""
        self._call("WebDriver:Navigate", {"url": address})

    def evaluate(self, script: str, given: Any = None) -> Any:
        """What an asynchronous function returns for an argument, as Playwright's `evaluate`."""
        waiting = f"""
            const [given, done] = arguments;
            ({script})(given).then((result) => done([result]), (error) => done(`${{error.name}}: ${{error.message}}`));
        """
        found = self._call("WebDriver:ExecuteAsyncScript", {"script": waiting, "args": [given], "sandbox": None})
        value = found["value"]
        if isinstance(value, str):
            raise RuntimeError(value)
        return value[0]


@contextmanager
def firefox(environment: Mapping[str, str]) -> Iterator[Firefox]:
    """An open Firefox with WebGPU, if it has one here, in an environment that names the driver."""
    path = firefox_path()
    assert path is not None
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        prefs = {**PREFS, "marionette.port": port}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in prefs.items()]
        Path(profile, "user.js").write_text("\n".join(lines))
        command = [path, "--headless", "--no-remote", "--marionette", "--profile", profile]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env={**environment, "HOME": profile}, **quiet)
        try:
            with connected(port, process) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def connected(port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    """The connection, once Firefox answers."""
    end = time.monotonic() + STARTING
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 3600)
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.2)
