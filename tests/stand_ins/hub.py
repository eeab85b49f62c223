"""A Hugging Face hub on this machine: as much of its HTTP protocol as loading models and data sets needs.

    ROOT/models/<id>/<files>        <id> has one segment or two
    ROOT/datasets/<id>/<files>

What it answers follows the real hub, as the client libraries (huggingface_hub 2.4, datasets 5.2) read it: a file with
its ETag and its commit, parts of a file, lists of files, error codes in headers, and a redirect for a name that moved.
Not covered: authentication, large file storage, xet.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_ID = r"(?P<name>(?:[^/]+/)?[^/]+?)"
_FILE = re.compile(rf"/(?P<kind>datasets/)?{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_API = re.compile(
    rf"/api/(?P<kind>models|datasets)/{_ID}"
    r"(?:/(?P<what>revision|tree|paths-info)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?"
)


class _Refusal(Exception):
    """An answer other than the one that was asked for, with the code that tells the client why."""

    def __init__(self, status: HTTPStatus, code: str, commit: str | None = None) -> None:
        super().__init__(code)
        self.status = status
        self.headers = {"X-Error-Code": code} | ({"X-Repo-Commit": commit} if commit else {})


@dataclass(frozen=True)
class _Repository:
    """One model or data set."""

    name: str
    folder: Path

    def files(self) -> list[str]:
        """Paths of all files, relative to the repository."""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())

    def commit(self) -> str:
        """Forty hexadecimal digits that stay the same while the files do."""
        states = [(path, (self.folder / path).stat()) for path in self.files()]
        text = repr([self.name, *((path, state.st_size, state.st_mtime_ns) for path, state in states)])
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    def entry(self, path: str) -> dict[str, Any]:
        """A file or a folder, as lists show it."""
        workspace = self.folder / path
        oid = hashlib.sha256(path.encode()).hexdigest()[:40]
        if workspace.is_dir():
            return {"type": "directory", "path": path, "size": 0, "oid": oid}
        return {"type": "file", "path": path, "size": workspace.stat().st_size, "oid": oid}

    def tree(self, path: str, recursive: bool) -> list[dict[str, Any]]:
        """Entries below the folder `path`."""
        paths = (self.folder / path).glob("**/*" if recursive else "*")
        return [self.entry(workspace.relative_to(self.folder).as_posix()) for workspace in sorted(paths)]

    def about(self) -> dict[str, Any]:
        """The repository's own description."""
        names = {"id": self.name, "modelId": self.name, "sha": self.commit()}
        facts = {"private": False, "gated": False, "tags": [], "downloads": 0, "likes": 0}
        return names | facts | {"siblings": [{"rfilename": path} for path in self.files()]}


class Hub(ThreadingHTTPServer):
    """Serves the folder `root` while its `with` block runs; `url` is what HF_ENDPOINT has to be.

    Args:
        root: folder with `models` and `datasets`.
        moved: old id to new id; the old one is answered with a redirect.
        gated: ids whose files are for people who accepted terms.

    Attributes:
        requests: (method, path, status) of everything that was asked, in order.
    """

    daemon_threads = True

    def __init__(self, root: Path, *, moved: Mapping[str, str] | None = None, gated: tuple[str, ...] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.root = root
        self.moved = dict(moved or {})
        self.gated = gated
        self.requests: list[tuple[str, str, int]] = []

    @property
    def url(self) -> str:
        """Address of this hub."""
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> "Hub":
        threading.Thread(target=self.serve_forever, name="hub", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self.server_close()

    def repository(self, kind: str, name: str, revision: str | None) -> _Repository:
        """The repository, or the refusal that the real hub gives."""
        result = _Repository(name, self.root / kind / name)
        if not result.files():
            raise _Refusal(HTTPStatus.NOT_FOUND, "RepoNotFound")
        if revision not in (None, "main", result.commit()):
            raise _Refusal(HTTPStatus.NOT_FOUND, "RevisionNotFound")
        return result


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: `Hub.requests` is the log."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = urlsplit(self.path)
        path = unquote(address.path)
        try:
            if match := _FILE.fullmatch(path):
                self._file(match)
            elif match := _API.fullmatch(path):
                self._api(match, parse_qs(address.query), body)
            else:
                raise _Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound")
        except _Refusal as refusal:
            self._send(refusal.status, b"", refusal.headers)

    def _file(self, match: re.Match[str]) -> None:
        kind = "datasets" if match["kind"] else "models"
        if self._has_moved(match["name"]):
            return
        repository = self.server.repository(kind, match["name"], match["revision"])
        if match["name"] in self.server.gated:
            raise _Refusal(HTTPStatus.FORBIDDEN, "GatedRepo")
        if match["path"] not in repository.files():
            raise _Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", repository.commit())
        content = (repository.folder / match["path"]).read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": repository.commit(),
            "Accept-Ranges": "bytes",
        }
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if part is None:
            self._send(HTTPStatus.OK, content, headers)
            return
        first, last = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self._send(HTTPStatus.PARTIAL_CONTENT, content[first : last + 1], headers)

    def _api(self, match: re.Match[str], query: Mapping[str, list[str]], body: bytes) -> None:
        if self._has_moved(match["name"]):
            return
        repository = self.server.repository(match["kind"], match["name"], match["revision"])
        path = (match["path"] or "").strip("/")
        answer: Any = repository.about()
        if match["what"] == "tree":
            if not (repository.folder / path).is_dir():
                raise _Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", repository.commit())
            answer = repository.tree(path, query.get("recursive", ["false"])[0].lower() in {"1", "true"})
        elif match["what"] == "paths-info":
            request = self._asked_paths(body)
            answer = [repository.entry(item) for item in request if (repository.folder / item).exists()]
        self._send(HTTPStatus.OK, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _asked_paths(self, body: bytes) -> list[str]:
        if "json" in self.headers.get("Content-Type", ""):
            paths = json.loads(body)["paths"]
            return [paths] if isinstance(paths, str) else paths
        return parse_qs(body.decode()).get("paths", [])

    def _has_moved(self, name: str) -> bool:
        new = self.server.moved.get(name)
        if new is not None:
            self._send(HTTPStatus.TEMPORARY_REDIRECT, b"", {"Location": self.path.replace(name, new, 1)})
        return new is not None

    def _send(self, status: HTTPStatus, content: bytes, headers: Mapping[str, str]) -> None:
        self.server.requests.append((self.command, unquote(self.path), int(status)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
