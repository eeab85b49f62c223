"""The tools of the server, called as an agent calls them."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client

from paretune.cli import main
from paretune.commands import mcp
from paretune.commands.estimate.estimate import MAIN_COLUMNS

JOB = {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "max_train_samples": "4000"}
BUDGETS = "budgets: [{name: agents, usd_per_month: 2}]\n"


class Agent:
    """Calls tools, and remembers which commands they have begun."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, budgets: str | None = BUDGETS) -> None:
        self.begun: list[tuple[str, Mapping[str, str]]] = []
        path = folder / "budgets.yaml"
        path.write_text(budgets or BUDGETS)

        def begin(commands: Path, name: str, parameters: Mapping[str, str]) -> None:
            commands.mkdir(parents=True)
            self.begun.append((name, parameters))

        monkeypatch.setattr(mcp, "start", begin)
        self.budget = str(path)
        self._server = mcp.make_server(mcp.Tools(folder / "agents", self.budget if budgets else None))

    def call(self, tool: str, **arguments: Any) -> Any:
        async def act() -> Any:
            async with Client(self._server) as client:
                return await client.call_tool(tool, arguments)

        result = asyncio.run(act())
        text = "".join(part.text for part in result.content)
        return text if result.is_error else json.loads(text)

    def tools(self) -> dict[str, Any]:
        """Name of each tool to the schema of its arguments."""

        async def act() -> Any:
            async with Client(self._server) as client:
                return await client.list_tools()

        return {tool.name: tool.input_schema for tool in asyncio.run(act()).tools}


@pytest.fixture
def agent(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(workplace, monkeypatch)


def test_a_job_is_estimated_previewed_and_launched_within_the_budget_of_the_server(agent: Agent) -> None:
    named = agent.tools()["estimate"]["properties"]["parameters"]["properties"]  # by what an agent knows of parameters
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
    assert agent.begun == [("train", JOB | {"budget": agent.budget})]
    status = agent.call("status")
    assert ([entry["name"] for entry in status["launched"]], status["running"]) == (["train-1"], [])


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
        ({"keep-alive-minutes": 60}, "keep_alive_minutes"),
        ({"force": True}, "force"),
        ({"environment": {"A": "b"}}, "environment"),
        ({"training_arguments": {"push_to_hub": True}}, "training_arguments.push_to_hub"),
    ],
)
def test_an_agent_chooses_neither_code_nor_account_nor_money(
    agent: Agent, parameters: dict[str, Any], name: str
) -> None:
    for tool in ("estimate", "preview", "launch"):
        assert f"{name} cannot be set by an agent" in agent.call(tool, parameters=JOB | parameters)
    assert not agent.begun


def test_an_agent_reads_only_below_the_folder_of_the_server(agent: Agent, workplace: Path) -> None:
    (workplace / "rows").symlink_to("/etc")
    for path in ("/etc/passwd", "../rows.csv", "rows/passwd", "~/rows.csv", "file:///etc/passwd", "FILE:/etc/passwd"):
        for tool in ("estimate", "preview", "launch"):
            assert "must lie below the folder" in agent.call(tool, parameters=JOB | {"dataset": path})
        assert "must lie below the folder" in agent.call("launch", parameters={}, study=path)
    for models in (["distilbert-base-uncased", "/etc"], "distilbert-base-uncased, /etc"):
        assert "model must lie below the folder" in agent.call("estimate", parameters=JOB | {"model": models})
    study = workplace / "rates.yaml"
    rates = "learning_rate: {choices: [1e-5, 1e-4]}"
    for line in (f"job: {{dataset: /etc/passwd}}\nsearch: {{{rates}}}", "search: {model: {choices: [gpt2, /etc]}}"):
        study.write_text(f"name: a\nn_trials: 2\n{line}\n")

        assert "must lie below the folder" in agent.call("launch", parameters={"launcher": "local"}, study=str(study))
    assert not agent.begun


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("points: {full: {cfg: [{entry_script: evil.py, seed: 1}, {entry_script: evil.py, seed: 2}]}}", "entry_script"),
        ("points: {full: {entry_script: [evil.py, evil2.py]}}", "entry_script"),
        ("points: {full: {learning_rate: [1e-5, 1e-4]}, add: [{role: Admin, learning_rate: 1e-3}]}", "role"),
        ("points: {full: {sagemaker.training_image: [evil/a, evil/b]}}", "sagemaker"),
        ("points: {full: {cfg: [{sagemaker: {package_index: https://evil}}, {seed: 1}]}}", "sagemaker"),
        ("points: {full: {cfg: [{environment: {A: b}}, {seed: 1}]}}", "environment"),
        ("points: {full: {dataset: [/etc/passwd, rows.csv]}}", "dataset must lie below"),
        ("points: {full: {dataset: ['x://../../etc/passwd', rows.csv]}}", "dataset must lie below"),
        ("points: {table: ../secret.csv}", "points.table"),
        ("points: {full: {training_arguments.push_to_hub: [true, false]}}", "training_arguments.push_to_hub"),
        ("search: {training_arguments.hub_model_id: {choices: [a, b]}}", "training_arguments.hub_model_id"),
        ("storage: sqlite:////tmp/elsewhere.db\nsearch: {learning_rate: {choices: [1e-5, 1e-4]}}", "storage"),
        ("project: ../elsewhere\nsearch: {learning_rate: {choices: [1e-5, 1e-4]}}", "project"),
        ("job: {training_arguments: {push_to_hub: true}}\nsearch: {learning_rate: {choices: [1e-5]}}", "push_to_hub"),
    ],
)
def test_a_study_of_an_agent_has_only_jobs_that_an_agent_may_launch(
    agent: Agent, workplace: Path, text: str, fault: str
) -> None:
    (workplace / "x:").mkdir()
    (workplace.parent / "secret.csv").write_text("SECRET_first_line\n1\n")
    for script in ("evil.py", "evil2.py"):
        (workplace / script).touch()
    (workplace / "study.yaml").write_text(f"name: a\nn_trials: 2\n{text}\n")

    answer = agent.call("launch", parameters={"launcher": "local"}, study="study.yaml")

    assert fault in answer
    assert "cannot be set by an agent" in answer or "must lie below the folder" in answer
    assert "SECRET" not in answer
    assert not agent.begun


def test_a_launch_finds_a_free_name_after_a_folder_was_deleted_and_beside_another_server(
    agent: Agent, workplace: Path
) -> None:
    names = [agent.call("launch", parameters=JOB)["name"] for _ in range(3)]
    (workplace / "agents" / names[0]).rmdir()

    assert names == ["train-1", "train-2", "train-3"]
    assert agent.call("launch", parameters=JOB)["name"] == "train-1"
    assert agent.call("launch", parameters=JOB)["name"] == "train-4"


def test_a_study_is_launched_by_its_file_and_may_not_bring_a_script(agent: Agent, workplace: Path) -> None:
    path = workplace / "rates.yaml"
    path.write_text(
        "name: rates\nn_trials: 2\njob: {launcher: local}\nsearch: {learning_rate: {choices: [1e-5, 1e-4]}}\n"
    )
    assert agent.call("launch", parameters={"n_trials": 1}, study=str(path))["name"] == "study-1"

    path.write_text(f"entry_script: evil.py\n{path.read_text()}")
    assert "entry_script cannot be set by an agent" in agent.call("launch", parameters={}, study=str(path))
    assert agent.begun == [("study", {"n_trials": "1", "study": str(path), "budget": agent.budget})]


def test_a_wrong_budget_is_refused_before_the_server_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--budget", "nowhere.yaml"]) == 2
    assert "budget must name a YAML file" in capsys.readouterr().err
