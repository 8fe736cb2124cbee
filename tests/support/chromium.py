"""A headless Chromium under the tests' control, by its debugging protocol over a pair of pipes: no port, no driver."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

PHONE = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
DESK = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chromium-headless-shell",
)


def find_chromium() -> str | None:
    """The first Chromium on the PATH; the environment's DPBEAM_CHROMIUM goes before."""
    named = os.environ.get("DPBEAM_CHROMIUM")
    return next((path for name in filter(None, (named, *_NAMES)) if (path := shutil.which(name))), None)


def chromium_flags(folder: str) -> list[str]:
    """For a run that leaves nothing behind and asks nothing of the network.

    The superuser has no sandbox of Chromium's to be in; the page runs no script, and its policy loads nothing.
    """
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    quiet = ["--disable-gpu", "--disable-extensions", "--disable-background-networking", "--no-first-run"]
    return [*sandbox, *quiet, "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile"]


class Chromium:
    """One page in one browser, whose network is cut off; a context manager.

    Attributes:
      requests: addresses that the page asked for.
      problems: what it wrote to its console.
    """

    def __init__(self) -> None:
        program = find_chromium()
        assert program is not None
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def pipes() -> None:  # Chromium reads descriptor 3 and writes 4
            low, high = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(low, 3)
            os.dup2(high, 4)

        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                *chromium_flags(self._folder.name),
                "--remote-debugging-pipe",
                "about:blank",
            ],
            preexec_fn=pipes,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, ""
        self._events: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.problems: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.call("Network.emulateNetworkConditions", **offline)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(30)
        os.close(self._out)
        os.close(self._in)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 16)
            assert data, "Chromium has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, event: Mapping[str, Any]) -> None:
        method, values = event.get("method"), event.get("params", {})
        self._events.append(dict(event))
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.problems.append(json.dumps(values))

    def open(
        self, page: Path, screen: Mapping[str, Any] = DESK, *, dark: bool = False, media: str = ""
    ) -> None:
        """Show a file."""
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._events.clear()
        self.requests.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._note(self._read())

    def value(self, script: str) -> Any:
        """What an expression is on the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"]
        assert result.get("subtype") != "error", result
        return result.get("value")

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def spoken(self) -> list[tuple[str, str]]:
        """(role, name) of what a screen reader meets, in its order."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        by_id = {node["nodeId"]: node for node in nodes}
        spoken: list[tuple[str, str]] = []

        def walk(node: Mapping[str, Any]) -> None:
            if not node.get("ignored"):
                spoken.append((node["role"]["value"], str(node.get("name", {}).get("value", ""))))
            for child in node.get("childIds", []):
                walk(by_id[child])

        walk(nodes[0])
        return spoken
