"""Notices to the user: to a topic of SNS or a webhook, whose address is secret, and without harm to a job."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import boto3
import pytest
from mlflow import MlflowClient
from moto import mock_aws

import paretune
from paretune.cli import main
from paretune.commands import doctor
from paretune.core.errors import BadInput
from paretune.launchers import notice
from paretune.launchers.notice import send
from paretune.specification.profile import read_profile


class Webhook(HTTPServer):
    """Keeps the lines that it gets, and answers with `status`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.status, self.released = 200, threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/T0/planted-secret"


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.lines.append(json.loads(body)["text"])
        self.send_response(self.server.status)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.lines.append("followed")

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def profile(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = workplace / "own.toml"
    monkeypatch.setenv("PARETUNE_PROFILE", str(path))
    return path


def test_a_topic_of_sns_gets_the_line(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        topic = boto3.client("sns", "eu-west-1").create_topic(Name="trainings")["TopicArn"]
        queue = boto3.resource("sqs", "eu-west-1").create_queue(QueueName="inbox")
        boto3.client("sns", "eu-west-1").subscribe(
            TopicArn=topic, Protocol="sqs", Endpoint=queue.attributes["QueueArn"]
        )
        environment = {"PARETUNE_PROFILE": str(profile)}
        profile.write_text(f'notify = "{topic}"\n')
        assert send("paretune: it\nends", environment) == ""
        assert json.loads(queue.receive_messages()[0].body)["Message"] == "paretune: it ends"
        profile.write_text(f'notify = "{topic}-of-nobody"\n')
        assert "NotFound" in send("lost", environment)


def test_doctor_sends_a_test_line_and_masks_the_webhook(
    profile: Path, webhook: Webhook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "environment_findings", lambda **_: [])  # another test's question, and it takes seconds
    monkeypatch.setattr(doctor, "torch_findings", lambda *_: [])
    profile.write_text(f'notify = "{webhook.address}"\n')
    assert main(["doctor", "--launcher", "local"]) == 0
    webhook.status = 403
    assert main(["doctor", "--launcher", "local"]) == 2
    profile.write_text(f'notify = "{webhook.address.replace("http:", "https:")}"\n')
    assert "wrong version number" in send("to a port without TLS", {"PARETUNE_PROFILE": str(profile)})

    assert webhook.lines == ["paretune: a test line of `paretune doctor`"] * 2
    output = capsys.readouterr().out
    assert "a test line was sent to the webhook at 127.0.0.1" in output
    assert "the webhook answered 403; mend notify in" in output
    assert "planted-secret" not in output


@pytest.mark.slow
def test_a_job_and_a_study_say_how_they_ended_and_record_no_address(
    profile: Path, webhook: Webhook, workplace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    profile.write_text(f'notify = "{webhook.address}"\n')
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--x')\nprint('y: 1')"
    (workplace / "mine.py").write_text(script)
    (workplace / "broken.py").write_text("raise SystemExit('no corpus')")
    job = {"entry_script": "mine.py", "training_arguments": {"x": 1}}

    paretune.launch(paretune.JobSpec(**job))
    assert main(["train", "broken.py"]) == 3
    terms = {"objectives": {"cost_usd": "minimize", "y": "maximize"}, "sampler": "grid", "budget_usd": 1}
    paretune.study("mine", {"training_arguments.x": [1, 2]}, job={"entry_script": "mine.py"}, quiet=True, **terms)
    webhook.shutdown()
    webhook.server_close()
    paretune.launch(paretune.JobSpec(**job))  # a notice that fails hurts no job

    first, second, third = webhook.lines
    assert first.startswith("paretune: mine.py x=1 (paretune-")
    assert ") Completed; " in first
    assert "broken.py" in second
    assert "Failed: " in second
    assert third.startswith("paretune: study mine has ended: ")
    assert "warning: no notice was sent: URLError" in capfd.readouterr().err
    runs = MlflowClient().search_runs(["0"])
    assert "planted-secret" not in str([run.to_dictionary() for run in runs])


def test_a_wrong_address_is_refused_and_not_shown(profile: Path) -> None:
    profile.write_text('notify = "htps://planted-secret"\n')
    with pytest.raises(BadInput, match="notify must be the ARN of a topic of SNS") as refused:
        read_profile({"PARETUNE_PROFILE": str(profile)})
    assert "planted-secret" not in str(refused.value)


def test_a_webhook_is_not_followed_elsewhere_and_calls_no_channel(webhook: Webhook, profile: Path) -> None:
    profile.write_text(f'notify = "{webhook.address}"\n')
    environment = {"PARETUNE_PROFILE": str(profile)}

    assert send("<!channel> failed: <https://evil|see> & ghp_" + "a" * 36, environment) == ""
    webhook.status = 302
    assert send("again", environment) == "the webhook answered 302"

    assert webhook.lines == ["&lt;!channel&gt; failed: &lt;https://evil|see&gt; &amp; ...", "again"]


def test_a_webhook_that_does_not_come_to_an_end_delays_the_job_for_ten_seconds_at_most(
    webhook: Webhook, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", lambda *_, **__: webhook.released.wait(60))
    profile.write_text(f'notify = "{webhook.address}"\n')

    assert send("line", {"PARETUNE_PROFILE": str(profile)}) == "no answer within 0.2 s"

    webhook.released.set()
