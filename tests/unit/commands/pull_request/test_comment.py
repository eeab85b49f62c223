"""The comment on a pull request, and the action that writes it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paretune.commands.pull_request.comment import comment, run
from paretune.core.errors import BadInput

ROOT = Path(__file__).parents[4]


def job(params: dict[str, object] | None = None, origin: str = "measured", **metrics: float) -> dict[str, Any]:
    return {"metrics": metrics, "params": params or {}, "origin": origin, "remarks": []}


def row(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_an_f1_that_fell_beyond_noise_is_worse() -> None:
    text = comment(job(f1=0.80, cost_usd=0.5), job(f1=0.85, cost_usd=0.5))

    assert row(text, "F1") == ["0.8000", "0.8500", "**worse** by 0.0500"]
    assert row(text, "cost, USD") == ["0.5", "0.5", "within noise (+0.0%)"]


def test_a_difference_that_two_equal_runs_show_is_noise() -> None:
    # Two standard errors of a difference of two runs, at 0.004 each: 0.0113.
    assert row(comment(job(f1=0.840), job(f1=0.851)), "F1")[2] == "within noise"
    assert row(comment(job(f1=0.839), job(f1=0.851)), "F1")[2] == "**worse** by 0.0120"


def test_fewer_dollars_are_better_and_fewer_samples_per_second_worse() -> None:
    text = comment(
        job(cost_usd=0.8, throughput_samples_per_second=50), job(cost_usd=1.0, throughput_samples_per_second=100)
    )

    assert row(text, "cost")[2] == "better (-20.0%)"
    assert row(text, "throughput")[2] == "**worse** (-50.0%)"


def test_settings_that_differ_are_named() -> None:
    text = comment(job({"learning_rate": 1e-4, "seed": 1}), job({"seed": 1, "batch": 8}))

    assert "- setting `learning_rate`: `0.0001` here, not set on main" in text
    assert "- setting `batch`: not set here, `8` on main" in text
    assert "seed" not in text


def test_without_a_run_of_the_main_branch_there_is_no_comparison() -> None:
    text = comment(job(f1=0.8), None)

    assert row(text, "F1") == ["0.8000", "", ""]
    assert "there is no result of the main branch yet" in text


def test_a_simulated_job_is_not_compared_with_a_measured_one() -> None:
    assert "simulated here, measured on main: not to be compared" in comment(job(origin="simulated"), job())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"error": {"message": "failed"}}'])
def test_what_is_no_finished_job_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)

    with pytest.raises(BadInput, match="must be what `paretune main --json` prints"):
        run([str(path)])


@pytest.mark.slow
def test_the_action_trains_and_comments_beside_the_main_branch(workplace: Path) -> None:
    # Its steps as the runner would run them, with a `gh` that keeps what it is given.
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    programs = workplace / "bin"
    programs.mkdir()
    (programs / "gh").write_text('#!/bin/sh\ncp "$5" "$KEPT/commented.md"\necho "$@" > "$KEPT/called"\n')
    (programs / "paretune").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m paretune "$@"\n')
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for path in programs.iterdir():
        path.chmod(0o755)
    hostile = workplace / "json.py"  # the pull request's own module of that name
    hostile.write_text("import os, pathlib\npathlib.Path('stolen').write_text(os.environ.get('GH_TOKEN', ''))\n")
    (workplace / "paretune.py").write_text(hostile.read_text())
    temporary = workplace.parent / f"{workplace.name}-runner"
    temporary.mkdir()
    inputs = {
        "inputs.parameters": "--launcher simulated --instance_type ml.g5.xlarge --max_train_samples 4000 "
        '--tags \'{"team": "a b"}\'',
        "inputs.github-token": "token",
        "github.repository": "team/project",
        "github.event.pull_request.number": "7",
    }

    def execute(name: str) -> None:
        expressions = {
            key: re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda m: inputs[m[1]], text)
            for key, text in steps[name].get("env", {}).items()
        }
        written = {"GITHUB_OUTPUT": str(workplace / "output"), "GITHUB_STEP_SUMMARY": str(workplace / "summary")}
        written |= {"RUNNER_TEMP": str(temporary), "KEPT": str(workplace)}
        environment = os.environ | expressions | written | {"PATH": f"{programs}:{os.environ['PATH']}"}
        words = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", steps[name]["run"]]
        subprocess.run(words, cwd=workplace, env=environment, check=True, capture_output=True)

    execute("Train")
    execute("Keep it for later pull requests")
    execute("Write the comment")
    execute("Comment")

    assert not (workplace / "stolen").exists()
    assert (workplace / "called").read_text().split()[:3] == ["pr", "comment", "7"]
    commented = (workplace / "commented.md").read_text()
    assert row(commented, "cost, USD")[2] == "within noise (+0.0%)"
    assert commented == (workplace / "summary").read_text()
    assert json.loads((workplace / "paretune.json").read_text())["params"]["tags"] == '{"team": "a b"}'
    assert (workplace / "output").read_text() == f"result={workplace / 'paretune.json'}\n"


def test_the_action_gives_the_runner_no_text_of_a_user_inside_a_command() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())

    assert not [step["name"] for step in action["runs"]["steps"] if "${{" in step.get("run", "")]


def test_only_the_step_that_comments_has_the_token() -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]

    assert [step["name"] for step in steps if "github-token" in str(step)] == ["Comment"]
    assert not [step["name"] for step in steps if re.search(r"python (?!-P )", step.get("run", ""))]
    assert "python" not in next(step["run"] for step in steps if step["name"] == "Comment")
