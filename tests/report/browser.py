"""Drive a headless Chromium over its debugging pipe, and record its requests."""

import fcntl
import json
import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATH = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--remote-debugging-pipe", "--window-size=1300,1500"),
)
DOMAINS = ("Network", "Runtime", "Log", "Page")
SAYS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


class Browser:
    """One page, with all that it requests and all that its console says."""

    def __init__(self, home):
        read, self._write, self._read, write = [
            fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
            for end in (*os.pipe(), *os.pipe())
        ]
        line = f'exec "$@" 3<&{read} 4>&{write}'
        command = ("bash", "-c", line, "bash", PATH, *FLAGS, f"--user-data-dir={home}")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(read, write), **quiet)
        os.close(read)
        os.close(write)
        self._count, self._buffer = 0, b""
        self.events, self._session = [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in DOMAINS:
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)

    def call(self, method, **params):
        """Call a method of the protocol and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    def _next(self):
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            assert part, "the browser ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path):
        """Open a file and wait until it is loaded."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def run(self, script):
        """Return the value of a script in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    @property
    def requests(self):
        """The addresses that the page asked for, itself and data aside."""
        sent = [
            e for e in self.events if e.get("method") == "Network.requestWillBeSent"
        ]
        urls = [event["params"]["request"]["url"] for event in sent]
        return [url for url in urls if not url.startswith(("file:", "data:"))]

    @property
    def console(self):
        """All that the console says."""
        return [e["params"] for e in self.events if e.get("method") in SAYS]
