"""A proxy between paretune and a server that answers as badly as a test wants it to."""

import http.client
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.stand_ins.sagemaker.calls import s3_operation

TROUBLES = ("reset", "lost", "hang", "slow", "429", "500", "503", "garbage")
"""What `Proxy.disturb` can do to a call, `shuffled` and `twice` apart, which are for logs only.

reset: the connection breaks before the call is heard. lost: it is heard, and the connection breaks before the answer.
hang: no answer for a long time. slow: one after SLOW_S. A number: an answer with that status. garbage: a page of HTML.
"""
SLOW_S = 1.5
_HANG_S = 20.0
_HOP = {"connection", "transfer-encoding", "content-length", "host", "expect"}


@dataclass
class _Rule:
    how: str
    fits: Callable[[str], bool]
    times: int


class Proxy:
    """Stands before a server of this machine.

    Attributes:
        url: where it listens.
        heard: operations (of AWS) or paths that were called, in their order.
        disturbed: how many calls were answered badly.
    """

    def __init__(self, backend: str) -> None:
        self.backend = urlsplit(backend)
        self.heard: list[str] = []
        self.disturbed = 0
        self.draw = random.Random(0)
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._calm = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that are killed
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def disturb(self, how: str, fits: Callable[[str], bool] = lambda _: True, times: int = 1_000_000) -> None:
        """From now on disturb the next `times` calls whose operation or path fits."""
        self._calm.clear()
        with self._lock:
            self._rules.append(_Rule(how, fits, times))

    def calm(self) -> None:
        """Disturb nothing any more; calls that hang go on."""
        with self._lock:
            self._rules.clear()
        self._calm.set()

    def close(self) -> None:
        """Stop listening."""
        self.calm()
        self._server.shutdown()
        self._server.server_close()

    def met(self, call: str) -> str:
        """What happens to a call; empty where it is left alone."""
        with self._lock:
            self.heard.append(call)
            for rule in self._rules:
                if rule.times > 0 and rule.fits(call):
                    rule.times -= 1
                    self.disturbed += 1
                    return rule.how
        return ""

    def hang(self) -> None:
        """Wait until it is calm, or for a long time."""
        self._calm.wait(_HANG_S)


@contextmanager
def standing_before(backend: str) -> Iterator[Proxy]:
    """A proxy, gone after the block."""
    proxy = Proxy(backend)
    try:
        yield proxy
    finally:
        proxy.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Proxy

    def handle_expect_100(self) -> bool:
        return super().handle_expect_100()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        body = self._body()
        how = self.owner.met(self._operation(body))
        if how == "reset":
            self._break()
            return
        if how == "hang":
            self.owner.hang()
            self._break()
            return
        if how == "slow":
            time.sleep(SLOW_S)
        if how.isdigit() or how == "garbage":
            self._answer(int(how) if how.isdigit() else 200, [("Content-Type", "text/html")], b"<html>\xff oops</html>")
            return
        status, headers, content = self._forward(body)
        if how == "lost":
            self._break()
            return
        if how in ("shuffled", "twice"):
            content = _mixed(content, how, self.owner.draw)
        self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _serve  # noqa: N815

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _operation(self, body: bytes) -> str:
        target = self.headers.get("X-Amz-Target")
        if target:
            return target.rpartition(".")[2]
        address = urlsplit(self.path)
        if self.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
            return parse_qs(body.decode()).get("Action", [""])[0]
        if "Authorization" in self.headers and "AWS4" in self.headers["Authorization"]:
            return s3_operation(self.command, address.path, address.query)
        return address.path

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        backend = self.owner.backend
        connection = http.client.HTTPConnection(backend.hostname or "", backend.port, timeout=60)
        headers = {name: text for name, text in self.headers.items() if name.lower() not in _HOP}
        try:
            connection.request(self.command, self.path, body, {**headers, "Host": backend.netloc})
            answer = connection.getresponse()
            retained = [
                (name, text) for name, text in answer.getheaders() if name.lower() not in _HOP - {"content-length"}
            ]
            return answer.status, retained, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, text in headers:
            if name.lower() != "content-length":
                self.send_header(name, text)
            elif self.command == "HEAD":
                length = text
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _break(self) -> None:
        """Reset the connection."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _mixed(content: bytes, how: str, draw: random.Random) -> bytes:
    """Log events out of their order, or some of them twice."""
    answer = json.loads(content)
    events = answer.get("events", [])
    if how == "twice":
        events += draw.sample(events, len(events) // 2)
    draw.shuffle(events)
    return json.dumps({**answer, "events": events}).encode()
