"""Whether the MLflow store can be used; nothing in it is changed by asking."""

import http.server
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from paretune.commands.doctor.checks import store_findings
from paretune.core.checks import Finding, Verdict


def found_at(uri: str, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return list(store_findings({}))


def test_a_store_that_can_be_used_is_left_as_it_is(workplace: Path, database: Path) -> None:
    before = database.read_bytes()

    (result,) = store_findings({})

    assert result.verdict is Verdict.PASSED
    assert database.read_bytes() == before


def test_a_store_that_is_not_there_yet_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = found_at(f"sqlite:///{tmp_path / 'new.db'}", monkeypatch)

    assert result.verdict is Verdict.PASSED
    assert list(tmp_path.iterdir()) == []


def test_tables_of_another_version_are_wrong(workplace: Path, database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'acf3f17fdcc7'")

    (result,) = store_findings({})

    assert result.verdict is Verdict.FAILED
    assert "acf3f17fdcc7" in result.text
    assert result.commands == [f"mlflow db upgrade sqlite:///{database}"]


def test_a_server_that_does_not_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:  # bound, and nobody listens
        listener.bind(("127.0.0.1", 0))
        (result,) = found_at(f"http://ada:secret@127.0.0.1:{listener.getsockname()[1]}", monkeypatch)

    assert result.verdict is Verdict.FAILED
    assert "does not answer" in result.text
    assert "secret" not in result.text
    assert "mlflow server --port 5000" in result.commands


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    """Address of a server, and what it answers: status and text, by beginning of the path."""
    answers: dict[str, tuple[int, str]] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = next((say for path, say in answers.items() if self.path.startswith(path)), (404, ""))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", answers
        listening.shutdown()


NAMED = "/api/2.0/mlflow/experiments/get-by-name"


@pytest.mark.parametrize(
    ("version", "verdicts"),
    [
        (mlflow.__version__, [Verdict.PASSED, Verdict.PASSED]),
        ("2.22.4", [Verdict.PASSED, Verdict.FAILED]),
        ("99.0", [Verdict.PASSED, Verdict.FAILED]),
        ("<html>", [Verdict.PASSED, Verdict.NOT_CHECKED]),
    ],
)
def test_the_version_of_a_server_is_compared(
    server: tuple[str, dict[str, tuple[int, str]]],
    version: str,
    verdicts: list[Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri, answers = server
    answers |= {"/version": (200, version), NAMED: (200, '{"experiment": {"experiment_id": "0"}}')}

    assert [finding.verdict for finding in found_at(uri, monkeypatch)] == verdicts
