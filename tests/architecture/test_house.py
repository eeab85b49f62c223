"""The house rules that a machine can check."""

import ast
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import paretune
from paretune.cli import COMMANDS, command_named
from paretune.specification.job import JobSpec
from tests.support.pages import PAGES, ROOT, commands_of, job_of


def entry_points() -> dict[str, Any]:
    """Return the entry points of MLproject by name."""
    entries: dict[str, Any] = yaml.safe_load((ROOT / "MLproject").read_text())["entry_points"]
    return entries


def test_every_entry_point_calls_the_command_of_its_name_and_shows_the_defaults_that_a_job_has() -> None:
    assert {"main", *COMMANDS} >= entry_points().keys() >= {"main"}
    for name, entry in entry_points().items():
        assert entry["command"].split(" --")[0] == f"exec python entrypoints/run.py {name}"
    main = entry_points()["main"]
    texts, passed = JobSpec().as_text(), main["command"].partition(" --")[2].split(" --")
    shown = {name: item["default"] for name, item in main["parameters"].items()}
    assert shown == {name: texts[name] for name in shown}
    assert passed == [f"{name}={{{name}}}" for name in shown]


def test_a_forge_runs_what_a_developer_runs() -> None:
    lines = [line for path in ROOT.glob(".github/workflows/*") for line in path.read_text().splitlines()]
    commands = [line.partition("- run: ")[2] for line in lines if "run: " in line]

    assert commands
    assert all(re.fullmatch(r"make \w+|\.ci/\w+( \w+)?", command) for command in commands), commands


def test_a_commit_is_linted_by_the_version_that_lints_everything() -> None:
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]

    assert pinned
    assert [each["rev"] for each in repositories if "ruff" in each["repo"]] == [f"v{pinned[1]}"]


def test_nothing_unpacks_an_archive() -> None:
    unpacking = re.compile(r"extractall|(?<!\.str)\.extract\(|extractfile|unpack_archive")
    modules = (ROOT / "src").rglob("*.py")

    assert [path.name for path in modules if unpacking.search(path.read_text())] == []


def test_version_and_date_are_the_same_in_changelog_and_citation() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(r"^## \[(.+)\] - (\d.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert released[0] == (paretune.__version__, str(citation["date-released"]))
    assert citation["version"] == paretune.__version__


def test_the_environment_of_mlflow_run_is_a_file_that_exists_and_installs_this_package() -> None:
    project = yaml.safe_load((ROOT / "MLproject").read_text())
    environment = yaml.safe_load((ROOT / project["conda_env"]).read_text())
    pip = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]

    assert any(line.startswith(("-e .", ".", "--editable .")) for lines in pip for line in lines), pip


def test_the_functions_that_one_job_passes_are_where_the_page_says() -> None:
    chain = (ROOT / "CONTRIBUTING.md").read_text().partition("from call to call")[2].partition("The order never")[0]

    found = re.findall(r"`(\w+\.py)`: ((?:`\w+`(?:, )?)+)", chain)
    assert len(found) > 5
    for file, names in found:
        tree = ast.parse((ROOT / "src" / "paretune" / "jobs" / file).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert functions >= set(re.findall(r"\w+", names)), file


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    named = re.findall(r"`([\w.-]+/[\w./-]+\.[a-z]+)[`:]", (ROOT / "CONTRIBUTING.md").read_text())

    assert len(named) > 30
    assert [path for path in named if not any((ROOT / base / path).exists() for base in (".", "src/paretune"))] == []


@pytest.fixture(params=PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param.read_text())


def parameters_of(command: str) -> set[str]:
    """Return the names of all parameters of a command."""
    return {"json", *command_named(command).models()}


def test_every_command_in_a_page_is_one_that_paretune_takes(page: str) -> None:
    for words in commands_of(page):
        if words[1:] in (["--help"], ["--version"]):
            continue
        entry_point, parameters = job_of([word for word in words if word != "--help"])
        assert entry_point in COMMANDS, shlex.join(words)
        keys = {"name"} if entry_point == "study" else set()  # a key of its file
        assert {name.partition(".")[0] for name in parameters} <= parameters_of(entry_point) | keys, shlex.join(words)
        if entry_point == "train":
            JobSpec.read(parameters)  # raises on a wrong type and a value out of range
        elif entry_point in {"prices", "report"}:
            command_named(entry_point).read(parameters)


def test_the_pages_show_every_entry_point() -> None:
    shown = [words for path in PAGES for words in commands_of(path.read_text())]
    assert {job_of(words)[0] for words in shown if len(words) > 1} >= entry_points().keys() - {"main"}


def test_every_parameter_that_a_page_mentions_is_one_of_paretune(page: str) -> None:
    ours = "\n".join(line for line in page.splitlines() if "--backend" not in line)  # then the project can be anybody's
    mentioned = set(re.findall(r"-P\s+'?(\w+)=", ours)) | set(re.findall(r"`--(\w+) [^`]*`", ours))

    assert mentioned <= {name for command in COMMANDS for name in parameters_of(command)} | {"help", "key", "name"}


def test_the_study_in_the_tutorial_is_the_file_that_its_command_runs() -> None:
    text, *_ = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)

    assert yaml.safe_load(text) == yaml.safe_load((ROOT / "studies" / "smoke.yaml").read_text())


def project_files() -> list[Path]:
    """Return the files that are in git, or would be after `git add --all`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


# Written in pieces, so that the search does not find this file.
FOLDERS_OF_ONE_MACHINE = re.compile(r"(?<![\w.~-])/" + r"(?:work|root)/")
PACKAGE_REGISTRIES = re.compile(
    r"\b(?:[\w-]+\.)*(?:py" + r"pi|python" + r"hosted|deb\.deb" + r"ian|archive\.ubun" + r"tu)\.(?:org|com|net)\b"
    r"|://[^\s/]*(?:py" + r"pi|-d" + r"eb|deb-)[^\s/]*"
)


def test_no_file_names_a_folder_of_one_machine_or_a_package_registry() -> None:
    files = project_files()
    assert Path(__file__).resolve() in [path.resolve() for path in files]
    result = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        for pattern in (FOLDERS_OF_ONE_MACHINE, PACKAGE_REGISTRIES)
        for match in pattern.finditer(path.read_text(errors="replace"))
    ]

    assert not result


MOST_FILES_THAT_KNOW_SAGEMAKER = 10


def test_few_files_outside_the_launchers_know_that_sagemaker_exists() -> None:
    """Count the files whose code, apart from docstrings and comments, does one of three things.

    It names the launcher (the string "sagemaker"); it names a SageMaker instance type or the prefix of these types (a
    string without spaces, such as "ml."; in a sentence it is an example for people); or it imports from
    `launchers/sagemaker/`. All other files ask what a launcher declares. The parameters of SageMaker jobs
    (`spec.sagemaker.kms_key_id`) may be read anywhere.
    """
    package = ROOT / "src" / "paretune"
    outside = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "launchers"]

    knowing = sorted(path.relative_to(package).as_posix() for path in outside if _knows_sagemaker(path))

    assert len(knowing) <= MOST_FILES_THAT_KNOW_SAGEMAKER, knowing


def _knows_sagemaker(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    documented = (node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list))
    texts = {id(line.value) for body in documented for line in body if isinstance(line, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paretune.launchers.sagemaker"):
            return True
        text = node.value if isinstance(node, ast.Constant) and id(node) not in texts else None
        if isinstance(text, str) and (text == "sagemaker" or re.fullmatch(r"\S*\bml(\.|\\\.)\S*", text)):
            return True
    return False


def test_no_line_of_the_package_names_a_launcher_of_the_examples() -> None:
    modules = (ROOT / "src").rglob("*.py")

    assert [path.name for path in modules if "slurm" in path.read_text().lower()] == []
