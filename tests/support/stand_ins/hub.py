"""A Hugging Face hub on this machine, with the part of the HTTP protocol that loading models and data sets needs.

    ROOT/models/<id>/<files>        <id> has one segment or two
    ROOT/datasets/<id>/<files>

Its answers follow the real hub, as the client libraries (huggingface_hub 2.4, datasets 5.2) read them: a file with its
ETag and commit, parts of a file, lists of files, error codes in headers, and redirects for names that moved. It does
not cover authentication, large file storage and xet.
"""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

_ID = r"(?P<name>(?:[^/]+/)?[^/]+?)"
_FILE = re.compile(rf"/(?P<kind>datasets/)?{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_API = re.compile(
    rf"/api/(?P<kind>models|datasets)/{_ID}"
    r"(?:/(?P<what>revision|tree|paths-info)/(?P<revision>[^/]+)(?:/(?P<path>.*))?)?"
)


class Hub:
    """Serves the folder `root` while its `with` block runs. HF_ENDPOINT must be `url`.

    The id of a commit is computed from names and times of files. Requests for an earlier commit get the current files.

    Args:
        root: folder with `models` and `datasets`.
        moved: new ids by old ids; requests for an old one are redirected.
        gated: ids whose files are only for users who accepted terms.

    Attributes:
        url: the hub's address.
        requests: (method, path, status) of all requests, in order.
    """

    def __init__(self, root: Path, *, moved: Mapping[str, str] | None = None, gated: tuple[str, ...] = ()) -> None:
        self.requests: list[tuple[str, str, int]] = []
        self._root = root
        self._commits: set[str] = set()
        self._moved = moved or {}
        self._gated = gated
        application = Request.application(self._noted)
        self._server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Hub":
        threading.Thread(target=self._server.serve_forever, args=[0.05], name="hub", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _noted(self, request: Request) -> Response:
        response = self._answer(request)
        self.requests.append((request.method, request.path, response.status_code))
        return response

    def _answer(self, request: Request) -> Response:
        match = _FILE.fullmatch(request.path) or _API.fullmatch(request.path)
        if match is None:
            return _refusal(404, "EntryNotFound")
        name = match["name"]
        if name in self._moved:
            return Response(status=307, headers={"Location": request.full_path.replace(name, self._moved[name], 1)})
        folder = self._root / ((match["kind"] or "models").rstrip("/")) / name
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        commit = _digits(repr([name, [(path, (folder / path).stat().st_mtime_ns) for path in paths]]))
        if not paths:
            return _refusal(404, "RepoNotFound")
        self._commits.add(commit)
        if match["revision"] not in (None, "main"):
            if match["revision"] not in self._commits:
                return _refusal(404, "RevisionNotFound")
            commit = match["revision"]
        answer = self._file if match.re is _FILE else _about
        return answer(request, match, folder, commit)

    def _file(self, request: Request, match: re.Match[str], folder: Path, commit: str) -> Response:
        if match["name"] in self._gated:
            return _refusal(403, "GatedRepo")
        path = folder / match["path"]
        if not path.is_file():
            return _refusal(404, "EntryNotFound", commit)
        content = path.read_bytes()
        response = Response(content, headers={"X-Repo-Commit": commit}, content_type="application/octet-stream")
        response.set_etag(hashlib.sha256(content).hexdigest())
        return response.make_conditional(request.environ, accept_ranges=True, complete_length=len(content))


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Print nothing. `Hub.requests` is the log."""


def _about(request: Request, match: re.Match[str], folder: Path, commit: str) -> Response:
    """Return the description of a repository, the list of its files under a path, or the entries of some files."""
    place = folder / (match["path"] or "").strip("/")
    answer: Any = {"id": match["name"], "modelId": match["name"], "sha": commit}
    answer |= {"private": False, "gated": False, "tags": [], "downloads": 0, "likes": 0}
    answer["siblings"] = [_entry(path, folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    if match["what"] == "tree":
        if not place.is_dir():
            return _refusal(404, "EntryNotFound", commit)
        is_whole = request.args.get("recursive", "").lower() in {"1", "true"}
        answer = [_entry(path, folder) for path in sorted(place.glob("**/*" if is_whole else "*"))]
    elif match["what"] == "paths-info":
        asked = request.json["paths"] if request.is_json else request.form.getlist("paths")
        answer = [_entry(folder / path, folder) for path in asked if (folder / path).exists()]
    return Response(json.dumps(answer), content_type="application/json")


def _entry(path: Path, folder: Path) -> dict[str, Any]:
    """Return the entry of a file or folder in lists."""
    name = path.relative_to(folder).as_posix()
    kind, size = ("directory", 0) if path.is_dir() else ("file", path.stat().st_size)
    return {"type": kind, "path": name, "rfilename": name, "size": size, "oid": _digits(name)}


def _refusal(status: int, code: str, commit: str | None = None) -> Response:
    """Return an error response, with the code that names the reason for the client."""
    return Response(status=status, headers={"X-Error-Code": code} | ({"X-Repo-Commit": commit} if commit else {}))


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]
