"""The tools of the server, called as an agent calls them."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from paretune.cli.main import main, read_words
from paretune.commands.mcp.commands import CommandProcess
from paretune.commands.mcp.quotes import Quote, Quotes
from paretune.commands.mcp.quoting import Quoter
from paretune.commands.mcp.server import Tools, make_server
from paretune.commands.mcp.session import Session
from paretune.core.clock import SystemClock
from paretune.launchers.processes import this_process
from paretune.ledger.study_ledger import StudyLedger

JOB = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "max_train_samples": "4000"}
STUDY = """name: two rates
job: {launcher: simulated, instance_type: ml.g5.xlarge, max_train_samples: 4000}
search: {learning_rate: {choices: [1e-5, 1e-4]}}
objectives: {cost_usd: minimize, job_seconds: minimize}
"""


Popen = subprocess.Popen


class Job:
    """A job that never ends, unless it is stopped."""

    def __init__(self) -> None:
        self.stopped = False

    def outcome(self) -> Mapping[str, Any] | None:
        return {"error": {"message": "interrupted"}} if self.stopped else None

    def stop(self) -> None:
        self.stopped = True

    def last_lines(self) -> list[str]:
        return ["step 10"]


class Agent:
    """Calls tools; remembers what was really begun."""

    def __init__(self, folder: Path, budget_usd: float, *, own_code: bool = False) -> None:
        self.begun: list[Quote] = []
        self.jobs: dict[str, Job] = {}
        session = Session(
            "default",
            budget_usd,
            open_ledger=lambda name: StudyLedger(f"sqlite:///{folder / 'agents.db'}", name),
            start=lambda quote, _: self.begun.append(quote),
            command=lambda name: self.jobs.setdefault(name, Job()),
        )
        quoter = Quoter(folder=folder, clock=SystemClock(), own_code=own_code)
        self._server = make_server(Tools(session, quoter, Quotes(), SystemClock()))

    def ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        async def act() -> Any:
            async with Client(self._server) as client:
                return await question(client)

        return asyncio.run(act())

    def call(self, tool: str, **arguments: Any) -> Any:
        result = self.ask(lambda client: client.call_tool(tool, arguments))
        text = "".join(part.text for part in result.content)
        return text if result.is_error else json.loads(text)


@pytest.fixture
def agent(workplace: Path) -> Agent:
    (workplace / "agents").mkdir()
    return Agent(workplace / "agents", budget_usd=2.0)


def test_a_quoted_job_is_launched_with_its_worst_case_as_its_limit(agent: Agent) -> None:
    quoted = agent.call("quote", parameters=JOB)
    launched = agent.call("launch", quote=quoted["quote"])

    assert quoted["worst_case_usd"] == 1.4777  # 1.408 USD an hour, an hour and 178 s to stop and upload, rounded up
    assert (launched["name"].partition("-")[0], launched["state"]) == ("main", "running")
    assert agent.begun[0].parameters == JOB | {"max_cost_usd": f"{quoted['worst_case_usd']:.4f}"}
    assert agent.call("status")["left_usd"] == pytest.approx(2.0 - quoted["worst_case_usd"])


def test_the_second_job_that_does_not_fit_the_session_is_refused(agent: Agent) -> None:
    first, second = (agent.call("quote", parameters=JOB | {"seed": seed})["quote"] for seed in ("1", "2"))
    agent.call("launch", quote=first)

    assert "session default: worst case 1.478 USD does not fit: of 2 USD 0 are spent" in agent.call(
        "launch", quote=second
    )
    assert len(agent.begun) == 1


def test_a_changed_quote_launches_nothing(agent: Agent) -> None:
    quoted = agent.call("quote", parameters=JOB)["quote"]

    assert "was not signed by this server" in agent.call("launch", quote="A" + quoted)
    assert not agent.begun


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"entry_script": "evil.py"}, "entry_script brings code of its own"),
        ({"image_uri": "evil/image"}, "image_uri brings code of its own"),
        ({"max_cost_usd": "1000"}, "max_cost_usd cannot be set here"),
        ({"budget": "mine.yaml"}, "budget cannot be set here"),
        ({"user": "boss"}, "user cannot be set here"),
        ({"tags": '{"team": "rich"}'}, "tags cannot be set here: the profile of this server says whose its jobs are"),
        ({"register": "model"}, "register cannot be set by an agent"),
        ({"role": "Administrator"}, "role cannot be set by an agent"),
        ({"bucket": "other"}, "bucket cannot be set by an agent"),
        ({"keep_alive_minutes": "60"}, "keep_alive_minutes cannot be set by an agent"),
        ({"training_arguments": '{"push_to_hub": true}'}, "training_arguments cannot be set by an agent"),
        ({"dataset": "/etc/passwd"}, "dataset must lie below the current folder of this server, got /etc/passwd"),
        ({"model": "../secret"}, "model must lie below the current folder of this server, got ../secret"),
        ({"recorded_runs": "~/runs.csv"}, "recorded_runs must lie below the current folder"),
        ({"dataset": "file:///etc/passwd"}, "dataset must lie below the current folder"),
        ({"learning_rate": "-1"}, "learning_rate must be greater than 0"),
        ({"sed": "1"}, "unknown parameter sed"),
        ({"dataset": "missing.csv"}, "missing.csv does not exist"),
    ],
)
def test_what_is_not_quoted_says_why(agent: Agent, parameters: dict[str, str], reason: str) -> None:
    assert reason in agent.call("quote", parameters=JOB | parameters)


@pytest.mark.parametrize(
    ("study", "key", "message"),
    [
        ("{path}", "storage: sqlite:////tmp/other.db", "storage cannot be set here"),
        ("{path}", "", ""),
        ("/etc/passwd", "", "study must lie below the current folder of this server, got /etc/passwd"),
        ("secret.txt", "", "study must be the name of a shipped study or a file that ends with .yaml or .yml"),
        ("link.yaml", "", "study must lie below the current folder of this server, got link.yaml"),
    ],
)
def test_a_study_reads_and_writes_where_the_server_says(
    agent: Agent, workplace: Path, study: str, key: str, message: str
) -> None:
    path = workplace / "rates.yaml"
    path.write_text(f"{STUDY}budget_usd: 1.5\n{key}\n")
    (workplace / "secret.txt").write_text("password")
    (workplace / "link.yaml").symlink_to("/etc/passwd")

    answer = agent.call("quote", study=study.format(path=path))

    assert message in (answer if message else answer["quote"])
    assert "password" not in str(answer)
    assert "root:" not in str(answer)


@pytest.mark.parametrize("change", ["job: {register: model, ", "job: {keep_alive_minutes: 60, "])
def test_a_study_sets_nothing_that_a_job_of_an_agent_may_not(agent: Agent, workplace: Path, change: str) -> None:
    path = workplace / "rates.yaml"
    path.write_text(STUDY.replace("job: {", change) + "budget_usd: 1.5\n")

    assert "cannot be set by an agent" in agent.call("quote", study=str(path))


def test_arguments_have_types_choices_and_bounds(agent: Agent) -> None:
    tools = {tool.name: tool.input_schema for tool in agent.ask(lambda client: client.list_tools()).tools}
    job = tools["quote"]["properties"]["parameters"]
    parameters = job["properties"]

    assert job["additionalProperties"] is False
    assert not {"role", "register", "entry_script", "tags", "dry_run"} & parameters.keys()
    assert parameters["precision"]["enum"] == ["auto", "fp32", "bf16", "fp16"]
    assert (parameters["learning_rate"]["type"], parameters["learning_rate"]["exclusiveMinimum"]) == ("number", 0)
    assert (parameters["seed"]["type"], parameters["seed"]["default"]) == ("integer", 42)
    assert {
        entry["type"] for entry in tools["estimate"]["properties"]["parameters"]["properties"]["seed"]["anyOf"]
    } == {
        "integer",
        "array",
    }
    assert "storage" not in tools["quote"]["properties"]["overrides"]["properties"]
    arguments = [schema for tool in tools.values() for schema in tool["properties"].values()]
    assert all(schema["description"] for schema in [*arguments, *parameters.values()])


def test_typed_values_are_those_of_the_command_line(agent: Agent) -> None:
    job = JOB | {"max_train_samples": 4000, "spot": False, "learning_rate": 3e-5}

    assert agent.call("quote", parameters=job)["worst_case_usd"] == 1.4777


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seed": "--help"}, "seed must be a whole number, got '--help'"),
        ({"strategy": "--help"}, "strategy must be one of"),
        ({"model": None}, "model must be a text, a number, true, false"),
        ({"model": [["a"]]}, "model must be a text, a number, true, false"),
        ({"seed": True}, "seed must be a whole number, got 'true'"),
    ],
)
def test_values_of_another_type_are_refused(agent: Agent, parameters: dict[str, Any], message: str) -> None:
    assert message in agent.call("quote", parameters=JOB | parameters)


def test_the_server_says_its_version(agent: Agent) -> None:
    async def version_of(client: Client) -> str:
        return client.server_info.version

    assert agent.ask(version_of) == version("paretune")


def test_an_estimate_launches_nothing_not_even_probes(agent: Agent) -> None:
    rows = agent.call("estimate", parameters=JOB | {"instance_type": ["ml.g5.xlarge", "ml.g5.12xlarge"]})["rows"]

    assert [row["instance_type"] for row in rows] == ["ml.g5.xlarge", "ml.g5.12xlarge"]
    assert "probe launches jobs" in agent.call("estimate", parameters=JOB | {"probe": "true"})


def test_a_study_is_quoted_by_its_budget_and_launched_as_it_was_quoted(agent: Agent, workplace: Path) -> None:
    path = workplace / "rates.yaml"
    path.write_text(STUDY + "budget_usd: 1.5\n")
    quoted = agent.call("quote", study=str(path))
    path.write_text(STUDY + "budget_usd: 900\n")
    agent.call("launch", quote=quoted["quote"])

    copy = Path(agent.begun[0].parameters["study"])
    assert quoted["worst_case_usd"] == 1.5
    assert agent.begun[0].parameters["budget_usd"] == "1.5"
    assert "900" not in copy.read_text()


@pytest.mark.parametrize("name", ["budget", "user", "tags"])
def test_a_study_does_not_say_who_pays_for_it_either(agent: Agent, workplace: Path, name: str) -> None:
    path = workplace / "rates.yaml"
    value = "{team: rich}" if name == "tags" else "rich"
    study = STUDY + "budget_usd: 1.5\n"
    assert "job: {" in study
    path.write_text(study.replace("job: {", f"job: {{{name}: {value}, "))

    assert f"{name} cannot be set here" in agent.call("quote", study=str(path))


def test_a_quoted_job_is_charged_as_the_profile_says(agent: Agent, workplace: Path) -> None:
    (workplace / "paretune.toml").write_text('tags = {team = "search"}\nuser = "agent"')
    agent.call("launch", quote=agent.call("quote", parameters=JOB)["quote"])

    launched = agent.begun[0].parameters
    assert (json.loads(launched["tags"]), launched["user"]) == ({"team": "search"}, "agent")


def test_a_study_whose_copy_was_changed_after_the_quote_is_not_launched(agent: Agent, workplace: Path) -> None:
    path = workplace / "rates.yaml"
    path.write_text(STUDY + "budget_usd: 1.5\n")
    quoted = agent.call("quote", study=str(path))
    for copy in (workplace / "agents").glob("*.yaml"):
        copy.write_text(copy.read_text() + "n_parallel: 9\n")

    assert "has been changed" in agent.call("launch", quote=quoted["quote"])
    assert not agent.begun


def test_a_study_without_a_budget_is_not_quoted(agent: Agent, workplace: Path) -> None:
    path = workplace / "rates.yaml"
    path.write_text(STUDY + "n_trials: 2\n")

    assert "set budget_usd" in agent.call("quote", study=str(path))


def test_a_job_is_stopped_by_its_name(agent: Agent) -> None:
    name = agent.call("launch", quote=agent.call("quote", parameters=JOB)["quote"])["name"]

    agent.call("stop", name=name)
    assert agent.call("status", name=name)["launched"][0]["state"] == "failed"
    assert f"nothing was launched as main-9: {name}" in agent.call("stop", name="main-9")


def test_without_its_extra_the_command_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)

    assert main(["mcp"]) == 2
    assert "pip install 'paretune[mcp]'" in capsys.readouterr().err


def test_a_value_that_looks_like_a_switch_stays_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(sys, "executable", "/bin/true")
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: started.extend(words) or Popen(words[:1]))
    CommandProcess(tmp_path / "main-1").start("main", {"model": "--help", "text_column": "a=b"})

    assert read_words(started[5:-1], ()) == ({"model": "--help", "text_column": "a=b"}, [])


@pytest.mark.parametrize(
    ("document", "process", "outcome"),
    [
        ("", "", None),  # just being started
        ("", "another-machine 1 0", None),
        ("", f"{this_process()}9", {"error": {"message": "out of memory"}}),
        ('{"metrics"', f"{this_process()}9", {"error": {"message": "out of memory"}}),
        ('{"metrics": {}}', f"{this_process()}9", {"metrics": {}}),
        ("", this_process(), None),
    ],
    ids=["starting", "elsewhere", "ended", "half a document", "a document", "runs"],
)
def test_the_outcome_of_a_command_is_read_from_its_folder(
    document: str, process: str, outcome: object, tmp_path: Path
) -> None:
    for name, text in {"document.json": document, "process.txt": process, "log.txt": "out of memory\n"}.items():
        (tmp_path / name).write_text(text)

    assert CommandProcess(tmp_path).outcome() == outcome


def test_a_session_is_named_as_a_folder_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--session", "../other"]) == 2
    assert "session must begin with a letter or digit" in capsys.readouterr().err
