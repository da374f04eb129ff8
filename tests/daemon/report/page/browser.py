# SPDX-License-Identifier: Apache-2.0
"""Opens pages in Debian's Chromium without a display, by its DevTools protocol over two pipes: no port, no driver."""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile

CHROMIUM = shutil.which("chromium")
ANSWER_WITHIN_S = 120


class Browser:
    """One page at a time. `complaints` has what its console, its script and its security policy said about it."""

    def __init__(self):
        self._profile = tempfile.mkdtemp(prefix="nanwatch-browser-")
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        arguments = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                     "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self._profile}",
                     "about:blank"]
        # It reads descriptor 3 and writes descriptor 4.
        self._process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "sh", *arguments], pass_fds=(to_browser, from_browser),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self._events, self._session = 0, b"", [], None
        self.complaints = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Audits"):
            self._call(f"{domain}.enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def shape(self, width=1280, height=900, scheme="light", media="screen"):
        """For the pages opened from now on."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self._call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address, drawn="document.documentElement.hasAttribute('data-drawn')"):
        """Returns when this holds: a page of ours says by it that its pictures are drawn."""
        self.complaints.clear()
        self._call("Page.navigate", url=str(address))
        self._await_event("Page.loadEventFired")
        self.evaluate(f"new Promise(done => {{ const look = () => {drawn} ? done() : requestAnimationFrame(look); look(); }})")
        # What has been said by now has arrived before this answer.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")

    def evaluate(self, script):
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def first_paint_ms(self):
        """Since the page was asked for, by the browser's own clock."""
        return self.evaluate("performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0]")

    def screenshot(self, path):
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True, clip={"x": 0, "y": 0, "width": size["width"],
                          "height": min(size["height"], 8000), "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"]))

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _await_event(self, method):
        while method not in self._events:
            self._read()
        self._events.clear()

    def _read(self):
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], ANSWER_WITHIN_S)[0]:
                raise AssertionError(f"the browser has said nothing for {ANSWER_WITHIN_S} s")
            got = os.read(self._from, 1 << 20)
            if not got:
                raise AssertionError("the browser has ended")
            self._rest += got
        text, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._events.append(method)
        if method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(parameters["args"]))
        if method == "Audits.issueAdded" and parameters["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.complaints.append(json.dumps(parameters["issue"]["details"]))
        return message
