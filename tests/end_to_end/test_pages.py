"""Every command of README and docs runs, from the folder of a user who has what the page says."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.specification.order import job_name
from paretune.studies.definition.file import StudyFile
from tests.support import chats
from tests.support.bills import later, line, write
from tests.support.cloud import REPOSITORY
from tests.support.pages import PAGES, commands_of, job_of
from tests.support.sentences import sentences, write_csv
from tests.support.stand_ins.sagemaker.emulator import Emulator

pytestmark = pytest.mark.slow

ELSEWHERE = {  # commands that other tests run: they serve, ask AWS's servers, or share a study
    "logs --run": "test_interruption.py",
    "stop --run": "test_interruption.py",
    "demo": "../unit/commands/test_demo.py",
    "train --max_train_samples": "../../.ci/run",  # README's own line, with `mlflow run`
    "mcp": "test_agents.py",
    "prices --refresh": "../unit/commands/test_prices.py",
    "estimate --like": "../unit/commands/test_estimate_like.py",
    "estimate --probe": "../unit/commands/test_estimate_probe.py",
    "study --storage": "test_two_drivers.py",
}
ENDS_WITH = {"max_cost_usd": 4, "once": 75}
"""Parameters whose example is meant to be refused, or runs one round of several, and their exit codes."""


def spelled(entry_point: str, parameters: dict[str, str]) -> list[str]:
    return [entry_point, *(word for name, text in parameters.items() for word in (f"--{name}", text))]


def is_run_elsewhere(entry_point: str, parameters: dict[str, str]) -> bool:
    return any(
        key.split()[0] == entry_point and {*key.split()[1:]} <= {f"--{name}" for name in parameters}
        for key in ELSEWHERE
    )


def needs_an_account(entry_point: str, parameters: dict[str, str]) -> bool:
    is_real = "launcher" not in parameters and parameters.get("instance_type", "").startswith("ml.")
    return entry_point in {"train", "doctor"} and is_real


def without_training(entry_point: str, parameters: dict[str, str]) -> dict[str, str]:
    """Return parameters that let the command check everything, but not train."""
    if "launcher" in parameters or "once" in parameters:
        return parameters
    return parameters | ({"dry_run": "true"} if entry_point in {"train", "study"} else {})


def commands_by_page() -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Return entry point and parameters of every command by the first page that has it, rounds of a study first."""
    result: dict[str, list[tuple[str, dict[str, str]]]] = {}
    known = set()
    for path in PAGES:
        for words in commands_of(path.read_text()):
            entry_point, parameters = job_of(words)
            command = (entry_point, without_training(entry_point, parameters))
            key = json.dumps(command, sort_keys=True)
            if "--help" not in words and key not in known:
                known.add(key)
                result.setdefault(str(path.relative_to(REPOSITORY)), []).append(command)
    return {page: sorted(commands, key=lambda command: "once" not in command[1]) for page, commands in result.items()}


COMMANDS = commands_by_page()


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """Return an emulated account. The pages start no job in it, so one is enough for all of them."""
    with Emulator(tmp_path_factory.mktemp("account")) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of prepared inputs, which pages that name the same rows and model share."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture
def user(workplace: Path, account: Emulator, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files that the pages name, with an emulated account."""
    (workplace / ".paretune").mkdir()
    for folder in ("datasets", "prepared"):
        (prepared / folder).mkdir(exist_ok=True)
        (workplace / ".paretune" / folder).symlink_to(prepared / folder)
    for folder in ("studies", "examples"):
        shutil.copytree(REPOSITORY / folder, workplace / folder)
    write([line(job_name("1" * 32, 1), 1.4), later()], workplace / "bill.csv")
    write_csv(workplace / "complaints.csv", sentences(60), header="narrative,product")
    write_csv(workplace / "rows.csv", sentences(60))
    write_csv(workplace / "tags.csv", [(text, f"{label}|any") for text, label in sentences(60)], header="text,tags")
    chats.language_model(workplace / "chat-model")
    chats.write_jsonl(workplace / "chats.jsonl", chats.conversations(40))
    tutorial = (REPOSITORY / "docs" / "tutorial.md").read_text()
    for name, text in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL):
        (workplace / name).write_text(text)
    (study,) = re.findall(r"^```yaml\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)
    (workplace / "study.yaml").write_text(study)
    write_csv(workplace / "reviews.csv", sentences(60))
    for project in ("sklearn_elasticnet", "torch_mlp"):
        shutil.copytree(REPOSITORY / "tests" / "foreign" / project, workplace / project)
    (workplace / "sft").mkdir()
    (workplace / "sft" / "run.sh").touch()
    runs = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1,usd an hour"
    (workplace / "runs.csv").write_text(
        f"{runs}\nml.p3.2xlarge,1,32,5e-5,65000,0.94,3.825\nml.p3.16xlarge,2,32,5e-5,5000,0.93,28.152\n"
    )
    monkeypatch.setenv("PARETUNE_PRICES", str(REPOSITORY / "studies" / "polarity_prices.csv"))  # as a page recommends
    for name, text in account.environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("PARETUNE_BUCKET", account.bucket)
    monkeypatch.setenv("PARETUNE_ROLE", account.role)
    return workplace


def simulate_for_reports() -> None:
    """Simulate two jobs that differ in their compiler, for the reports that compare them."""
    for compiler in ("false", "true"):
        simulated = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge"]
        assert main(["train", *simulated, "--training_arguments.torch_compile", compiler]) == 0


@pytest.mark.essential
@pytest.mark.parametrize("page", COMMANDS)
def test_every_command_of_the_pages_runs(page: str, user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unexpected: dict[str, tuple[int, str]] = {}
    if any(entry_point == "report" for entry_point, _ in COMMANDS[page]):
        simulate_for_reports()
    for entry_point, parameters in COMMANDS[page]:
        if is_run_elsewhere(entry_point, parameters):
            continue
        request = dict(parameters)
        if needs_an_account(entry_point, parameters):
            request.pop("role", None)  # the role of the account
        words = spelled(entry_point, request)
        code = main(words)
        expected = next((code for name, code in ENDS_WITH.items() if name in parameters), 0)
        if code != expected:
            unexpected[shlex.join(["paretune", *words])] = (code, capsys.readouterr().err[-1500:])
        capsys.readouterr()

    assert not unexpected, "\n".join(f"{command}: {code}\n{message}" for command, (code, message) in unexpected.items())


def test_what_other_tests_run_stands_in_the_pages_and_those_tests_exist() -> None:
    output = [command for commands in COMMANDS.values() for command in commands]

    assert sum(is_run_elsewhere(*command) for command in output) >= len(ELSEWHERE)
    assert all((Path(__file__).parent / name).is_file() for name in ELSEWHERE.values())


def test_a_study_in_a_page_reads_as_one(user: Path) -> None:
    blocks = [
        block
        for path in PAGES
        for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
        if "\nsearch:" in block
    ]
    assert blocks
    for block in blocks:
        path = user / "study.yaml"
        path.write_text(block)
        StudyFile.read(str(path), {})
