"""The tools of the server, called as an agent calls them."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from mlflow import MlflowClient

from paretune.commands import mcp
from paretune.commands.estimate.table import MAIN_COLUMNS
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.jobs.launch import begin_job
from paretune.jobs.workplace import Workplaces
from paretune.specification.inputs import split_configuration
from paretune.specification.job import JobSpec
from paretune.tracking.store import Tracking
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import ENDLESS, SMALL, ScriptedLauncher
from tests.support.workplaces import make_workplace

JOB = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "max_train_samples": "4000"}
BUDGETS = "budgets: [{name: agents, usd_per_month: 2}]\n"


class Agent:
    """Calls tools, and records which commands they have started."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        budgets: str | None = BUDGETS,
        reads: tuple[str, ...] = (),
    ) -> None:
        self.begun: list[Mapping[str, str]] = []
        path = folder / "budgets.yaml"
        path.write_text(budgets or BUDGETS)

        def begin(commands: Path, parameters: Mapping[str, str]) -> None:
            commands.mkdir(parents=True)
            self.begun.append(parameters)

        monkeypatch.setattr(mcp, "start", begin)
        self.budget = str(path)
        self._server = mcp.make_server(mcp.Tools(folder / "agents", self.budget if budgets else None, reads))

    def _answer(self, ask: Callable[[Client], Any]) -> Any:
        async def act() -> Any:
            async with Client(self._server) as client:
                return await ask(client)

        return asyncio.run(act())

    def call(self, tool: str, **arguments: Any) -> Any:
        result = self._answer(lambda client: client.call_tool(tool, arguments))
        text = "".join(part.text for part in result.content)
        return text if result.is_error else json.loads(text)

    def tools(self) -> dict[str, Any]:
        """Return the schema of the arguments of each tool by its name."""
        return {tool.name: tool.input_schema for tool in self._answer(lambda client: client.list_tools()).tools}


@pytest.fixture
def agent(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(workplace, monkeypatch)


def test_a_job_is_estimated_previewed_and_launched_within_the_budget_of_the_server(agent: Agent) -> None:
    named = agent.tools()["estimate"]["properties"]["parameters"]["properties"]  # what an agent sees
    assert {"model", "max_train_samples", "max_seq_length", "num_train_epochs", "instance_count"} <= named.keys()
    schema = jsonschema.Draft202012Validator({"properties": named})
    numbers = {"max_train_samples": 4000, "max_seq_length": 256, "num_train_epochs": 1.5, "instance_count": [1, 2]}
    assert schema.is_valid(JOB | numbers | {"strategy": ["ddp", "fsdp"], "instance_type": ["local", "ml.g5.xlarge"]})
    assert schema.is_valid({"global_batch_size": "16,32"})
    assert not schema.is_valid({"instance_count": [0]})
    row = agent.call("estimate", parameters=JOB)["rows"][0]
    assert row["seconds"] > 0
    assert row.keys() <= {*MAIN_COLUMNS, *JOB}  # without the seconds of each phase
    assert agent.call("preview", parameters=JOB)["worst_case_usd"] == pytest.approx(1.4741, abs=1e-3)
    launched = agent.call("launch", parameters=JOB)

    assert (launched["name"], launched["state"]) == ("train-1", "running")
    assert agent.begun == [JOB | {"budget": agent.budget}]
    status = agent.call("status")
    assert ([entry["name"] for entry in status["launched"]], status["running"]) == (["train-1"], [])
    assert "nothing was launched under the name 'train-7'" in agent.call("status", name="train-7")


def test_without_a_budget_nothing_is_launched(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(workplace, monkeypatch, budgets=None)

    assert "start it with --budget" in agent.call("launch", parameters=JOB)
    assert not agent.begun


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"entry_script": "evil.py"}, "entry_script"),
        ({"sagemaker": {"training_image": "evil/image"}}, "sagemaker"),
        ({"sagemaker.training_image": "evil/image"}, "sagemaker"),
        ({"budget": "mine.yaml"}, "budget"),
        ({"role": "Admin"}, "role"),
        ({"sagemaker.keep-alive-minutes": 60}, "sagemaker"),
        ({"force": "again"}, "force"),
        ({"like": "demo"}, "like"),
        ({"environment": {"A": "b"}}, "environment"),
        ({"training_arguments": {"push_to_hub": True}}, "training_arguments.push_to_hub"),
        ({"training_arguments": '\x0b{"push_to_hub": true}'}, "training_arguments.push_to_hub"),
    ],
)
def test_an_agent_chooses_neither_code_nor_account_nor_money(
    agent: Agent, parameters: dict[str, Any], name: str
) -> None:
    for tool in ("estimate", "preview", "launch"):
        assert f"{name} cannot be set by an agent" in agent.call(tool, parameters=JOB | parameters)
    assert not agent.begun


def test_a_misspelled_parameter_is_refused_with_the_right_name(agent: Agent) -> None:
    assert "did you mean instance_type" in agent.call("estimate", parameters=JOB | {"instance_typ": "local"})


def test_an_agent_reads_only_below_the_folder_of_the_server(agent: Agent, workplace: Path) -> None:
    (workplace / "rows").symlink_to("/etc")
    for path in ("/etc/passwd", "../rows.csv", "rows/passwd", "file:///etc/passwd", "x://../../etc/passwd"):
        for tool in ("estimate", "preview", "launch"):
            assert "must be below the folder" in agent.call(tool, parameters=JOB | {"dataset": path})
    for path in ("rows:default", "../etc:default", "/etc:default"):  # a path with a colon is not a Hub ID
        assert split_configuration(path) == (path, None)
    for models in (["distilbert-base-uncased", "/etc"], "distilbert-base-uncased, /etc"):
        assert "model must be below the folder" in agent.call("estimate", parameters=JOB | {"model": models})
    assert not agent.begun


PAYROLL = "s3://payroll/2026/salaries.csv"


def test_an_agent_reads_nothing_in_s3_unless_the_server_names_a_prefix(agent: Agent) -> None:
    for tool in ("estimate", "preview", "launch"):
        for name in ("dataset", "model", "validation_file", "test_file"):
            answer = agent.call(tool, parameters=JOB | {name: PAYROLL})
            assert f"{name} in S3 must be below a prefix of `paretune mcp --reads`, which has none" in answer
    assert not agent.begun


def test_an_agent_reads_in_s3_only_below_the_prefixes_of_the_server(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(workplace, monkeypatch, reads=("s3://corp/ml/", "s3://other"))

    for path in (
        *(
            PAYROLL,
            "s3://corp/mlx/a.csv",
            "s3://corp/ml2",
            "s3://corp",
            "s3://corp/",
            "s3://others/a",
            "S3://corp/ml/a",
        ),
        *("s3://corp/ml/../hr/a.csv", "s3://corp/ml/%2e%2e/hr/a.csv", "s3://corp/ml//a", "s3://corp/ml/./a"),
        *("s3://corp/ml/a\\..\\b", "s3://corp//ml/a", "s3://corp@payroll/ml/a", f"s3://corp/ml/a,{PAYROLL}"),
    ):
        for tool in ("preview", "estimate"):
            assert "must be below" in agent.call(tool, parameters=JOB | {"dataset": path}), path
    for path in ("s3://corp/ml/a.csv", "s3://corp/ml", "s3://other/a/b.csv"):
        assert "must be below" not in agent.call("preview", parameters=JOB | {"dataset": path}), path


@pytest.mark.parametrize("reads", ["corp/ml", "s3://", "s3://corp/ml/../hr", "s3://corp/%2e", "s3://corp//ml"])
def test_a_prefix_that_is_none_is_refused_when_the_server_starts(reads: str) -> None:
    with pytest.raises(BadInput, match="reads must name prefixes in S3"):
        mcp.McpOptions.read({"reads": reads})


def test_a_tool_refuses_arguments_that_it_does_not_have(agent: Agent) -> None:
    for name, schema in agent.tools().items():
        assert schema["additionalProperties"] is False, name
    for tool, arguments in (
        ("launch", {"parameters": {}, "study": "a.yaml"}),
        ("preview", {"parameters": JOB, "dry_run": False}),
        ("estimate", {"parameters": JOB, "like": "a"}),
        ("status", {"folder": "/"}),
        ("stop", {"name": "train-1", "force": True}),
        ("front", {"study": "a", "path": "/"}),
    ):
        unknown = [*arguments][-1]
        assert f"{tool} has no argument {unknown}" in agent.call(tool, **arguments)
    assert not agent.begun


@pytest.mark.parametrize(
    "arguments",
    [
        {"training_arguments": {"weight_decay": {"push_to_hub": True}}},
        {"training_arguments": {"lr_scheduler_type": ["linear", {"push_to_hub": True}]}},
        {"training_arguments": '{"weight_decay": {"push_to_hub": true}}'},
        {"training_arguments": '{"eval_strategy": "{\\"push_to_hub\\": true}"}'},
        {"training_arguments.weight_decay": {"push_to_hub": True}},
        {"training_arguments.weight_decay": '{"push_to_hub": true}'},
        {"training_arguments": {"lr_scheduler_type": "../../etc/passwd"}},
        {"training_arguments": {"max_steps": "many"}},
        {"training_arguments": [1]},
        {"training_arguments": "NaN"},
        {"training_arguments": "[" * 900 + "]" * 900},
    ],
)
def test_an_agent_sets_plain_values_only(agent: Agent, arguments: dict[str, Any]) -> None:
    for tool in ("estimate", "preview", "launch"):
        answer = agent.call(tool, parameters=JOB | arguments)
        assert "training_arguments" in answer
        assert "must be" in answer
    assert not agent.begun


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_values_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    tools = mcp.Tools(folder=tmp_path, budget="team.yaml")
    for arguments in (nested(900), {"weight_decay": nested(900)}):
        for act in (tools.estimate, tools.preview, tools.launch):
            with pytest.raises(BadInput, match="training_arguments must be a value with at most 20 levels"):
                act({"training_arguments": arguments})


def test_an_agent_sets_the_plain_values_of_every_type(agent: Agent) -> None:
    arguments = {"weight_decay": 0.1, "max_steps": 8, "lr_scheduler_type": "cosine", "gradient_checkpointing": True}
    texts = {"training_arguments.warmup_ratio": "0.1", "training_arguments.save_strategy": "no"}

    answer = agent.call("preview", parameters=JOB | {"training_arguments": arguments} | texts)

    assert answer["worst_case_usd"] > 0


def test_an_agent_looks_at_what_was_launched_alone(agent: Agent) -> None:
    agent.call("launch", parameters=JOB)

    assert agent.call("stop", name="train-1")["state"] == "running"
    for name in ("..", ".", "", "train-2"):
        assert "nothing was launched under the name" in agent.call("stop", name=name)


def test_a_launch_finds_a_free_name_after_a_folder_was_deleted_and_next_to_another_server(
    agent: Agent, workplace: Path
) -> None:
    names = [agent.call("launch", parameters=JOB)["name"] for _ in range(3)]
    (workplace / "agents" / names[0]).rmdir()

    assert names == ["train-1", "train-2", "train-3"]
    assert agent.call("launch", parameters=JOB)["name"] == "train-1"
    assert agent.call("launch", parameters=JOB)["name"] == "train-4"


def test_stop_ends_a_job_whose_launch_has_lost_contact_with_it(
    workplace: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "train.py").touch()
    launcher = ScriptedLauncher([ENDLESS])
    launcher.attach = lambda wanted: launcher.jobs.get(wanted)  # type: ignore[method-assign]
    place = make_workplace(launcher=launcher, tracking=Tracking({}, SystemClock()), clock=FakeClock())
    job = begin_job(JobSpec(instance_type=SMALL, entry_script="train.py"), place)
    job.record.leave()
    agent.call("launch", parameters=JOB)
    folder = workplace / "agents" / "train-1"
    (folder / "process.txt").write_text(f"{socket.gethostname()} 4194304 1")  # no process has this id
    (folder / "log.txt").write_text(f"job {job.order.job_name} on 1 x {SMALL}: train.py; stopped after 1 h\n")
    (folder / "document.json").write_text('{"error": {"message": "AWS does not answer"}}')
    monkeypatch.setattr(Workplaces, "at", lambda *_: place)

    assert agent.call("status", name="train-1")["launched"][0]["state"] == "running"
    stopped = agent.call("stop", name="train-1")

    assert launcher.jobs[job.order.job_name].stopped
    assert stopped["state"] == "ended"
    assert MlflowClient().get_run(job.record.run.run_id).info.status == "KILLED"


def test_a_server_that_was_killed_while_it_started_a_command_leaves_nothing_running(
    workplace: Path, agent: Agent
) -> None:
    folder = workplace / "agents" / "train-1"
    folder.mkdir(parents=True)
    (folder / "starter.txt").write_text(f"{socket.gethostname()} 4194304 1")  # no process has this id
    (folder / "document.json").touch()

    (launched,) = agent.call("status", name="train-1")["launched"]

    assert launched["state"] == "ended"
    assert launched["result"]["error"]["message"] == "no answer"


@pytest.mark.parametrize("name", ["dataset", "model"])
def test_a_nul_in_an_argument_of_an_agent_is_a_refusal(agent: Agent, name: str) -> None:
    for tool in ("preview", "launch"):
        assert "must be text without NUL characters" in str(agent.call(tool, parameters={name: "a\0b.csv"}))


@pytest.mark.trains
def test_an_unknown_model_is_refused_before_rows_are_prepared(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[object]()
    monkeypatch.setattr("paretune.jobs.preparation.subprocess.Popen", lambda words, **_: started.append(words))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (workplace / "reviews.csv").write_text("text,label\n" + "good,1\nbad,0\n" * 50)
    job = {"model": "nobody/knows", "dataset": "reviews.csv"}

    answer = Agent(workplace, monkeypatch).call("preview", parameters=job)

    assert "model nobody/knows is not in the local cache" in answer
    assert started == []
