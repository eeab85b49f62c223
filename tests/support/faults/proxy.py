"""A proxy between paretune and a server, which disturbs calls as a test wants."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from werkzeug.datastructures import EnvironHeaders
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.stand_ins.sagemaker.calls import Request, content_of

TROUBLES = ("reset", "lost", "hang", "slow", "429", "500", "503", "garbage")
"""The ways in which `Proxy.disturb` can disturb a call.

reset: the connection breaks before the server gets the call. lost: the server gets the call, and the connection breaks
before the answer. hang: no answer comes for _HANG_S, then the connection breaks. slow: the answer comes after SLOW_S. A
number: the proxy answers with that HTTP status. garbage: the proxy answers with a page of HTML.
"""
SLOW_S = 1.5
_HANG_S = 20.0
_HOP = {"connection", "transfer-encoding", "content-length", "host", "expect", "date", "server"}


class Proxy:
    """Passes calls on to a server on this machine while its `with` block runs.

    Attributes:
        url: the proxy's address.
        heard: AWS operations or paths that were called, in order.
        disturbed: how many calls were disturbed since `disturb` was last called.
    """

    def __init__(self, backend: str) -> None:
        self.heard: list[str] = []
        self.disturbed = 0
        self._backend = urlsplit(backend).netloc
        self._how, self._fits, self._left = "", (lambda call: True), 0
        self._calm = threading.Event()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.calm()
        self._server.shutdown()
        self._server.server_close()

    def disturb(self, how: str, fits: Callable[[str], bool] = lambda _: True, times: int = 1_000_000) -> None:
        """Disturb the next `times` calls whose operation or path `fits`, in one of the ways in TROUBLES."""
        self._calm.clear()
        self._how, self._fits, self._left, self.disturbed = how, fits, times, 0

    def calm(self) -> None:
        """Stop disturbing calls."""
        self._left = 0
        self._calm.set()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = content_of(environ)
        is_of_aws = "AWS4" in environ.get("HTTP_AUTHORIZATION", "")
        call = Request.read(environ).operation if is_of_aws else environ["PATH_INFO"]
        self.heard.append(call)
        how = ""
        if self._left > 0 and self._fits(call):
            self._left -= 1
            self.disturbed += 1
            how = self._how
        if how == "hang":
            self._calm.wait(_HANG_S)
        if how in ("hang", "reset"):
            return _break(environ)
        if how == "slow":
            time.sleep(SLOW_S)
        if how.isdigit() or how == "garbage":
            start_response(f"{how if how.isdigit() else 200} -", [("Content-Type", "text/html")])
            return [b"<html>\xff oops</html>"]
        status, headers, content = self._forward(environ, body)
        if how == "lost":
            return _break(environ)
        if environ["REQUEST_METHOD"] != "HEAD":
            headers["Content-Length"] = str(len(content))
        start_response(status, [*headers.items()])
        return [content]

    def _forward(self, environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._backend, timeout=60)
        headers = {name: text for name, text in EnvironHeaders(environ).items() if name.lower() not in _HOP}
        try:
            connection.request(environ["REQUEST_METHOD"], environ["REQUEST_URI"], body, headers)
            answer = connection.getresponse()
            kept = {name: text for name, text in answer.getheaders() if name.lower() not in _HOP - {"content-length"}}
            return f"{answer.status} {answer.reason or '-'}", kept, answer.read()
        finally:
            connection.close()


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Print nothing."""


def _break(environ: dict[str, Any]) -> Iterable[bytes]:
    """Break the connection."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError
