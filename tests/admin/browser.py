"""A real Chromium, driven by its own driver: W3C WebDriver is JSON over HTTP, so the standard library is enough."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from tests.log.log_support import missing

PATIENCE = 120.0
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # The standard's name for a reference to an element.
ELSEWHERE = "player.example"  # A name that leads to this machine.
FLAGS = (
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--mute-audio",
)


class Browser:
    """One window."""

    def __init__(self, driver: str, session: str) -> None:
        self._base = f"{driver}/session/{session}"

    def open(self, url: str) -> None:
        _call("POST", f"{self._base}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that the script returns."""
        return _call("POST", f"{self._base}/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def click(self, selector: str) -> None:
        """As a user does: scrolled into view, at its middle, and only if nothing covers it."""
        found = _call("POST", f"{self._base}/element", {"using": "css selector", "value": selector})
        _call("POST", f"{self._base}/element/{found[ELEMENT]}/click", {})

    def type(self, selector: str, text: str) -> None:
        found = _call("POST", f"{self._base}/element", {"using": "css selector", "value": selector})
        _call("POST", f"{self._base}/element/{found[ELEMENT]}/clear", {})
        _call("POST", f"{self._base}/element/{found[ELEMENT]}/value", {"text": text})

    def keys(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        acts = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        _call("POST", f"{self._base}/actions", {"actions": [{"type": "key", "id": "keys", "actions": acts}]})

    def look(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        """The size of the window and the colours that the user prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", {"features": [scheme]})

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        return _call("POST", f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def accessibility(self) -> list[dict[str, Any]]:
        """The tree that a screen reader gets, flat."""
        self.cdp("Accessibility.enable", {})
        nodes = self.cdp("Accessibility.getFullAXTree", {})["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    def screenshot(self, path: Path) -> None:
        """As a PNG with a palette: the documentation keeps them, so they must be small."""
        shot = Image.open(io.BytesIO(base64.b64decode(_call("GET", f"{self._base}/screenshot"))))
        shot.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)

    def problems(self) -> list[str]:
        """What the console complains of."""
        said = _call("POST", f"{self._base}/se/log", {"type": "browser"})
        return [line["message"] for line in said if line["level"] in ("SEVERE", "WARNING")]

    def until(self, script: str, *arguments: Any, seconds: float = PATIENCE) -> Any:
        """Wait until the script returns something true; returns it."""
        end = time.monotonic() + seconds
        while not (found := self.run(script, *arguments)):
            assert time.monotonic() < end, f"not within {seconds:.0f} s: {script} {arguments}"
            time.sleep(0.05)
        return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own; skips where it is not installed, and fails under CI."""
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or browser is None:
        missing("chromium and chromium-driver are not installed; tools/servers installs them")
    with tempfile.TemporaryDirectory(prefix="logplayer-chromium-") as folder:
        process = subprocess.Popen([str(driver), "--port=0"], stdout=subprocess.PIPE, text=True)
        try:
            at = _address(process)
            options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={folder}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = _call("POST", f"{at}/session", {"capabilities": {"alwaysMatch": wanted}})
            try:
                yield Browser(at, made["sessionId"])
            finally:
                _call("DELETE", f"{at}/session/{made['sessionId']}")
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if "started successfully on port" in line:
            return f"http://127.0.0.1:{line.rstrip().rstrip('.').rpartition(' ')[2]}"
    raise AssertionError("chromedriver ended without a port")


def _call(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        said = json.loads(error.read())["value"]
        raise AssertionError(f"{method} {url}: {said['error']}: {said['message']}") from None
