"""The demo: a whole study without settings, in its own folder."""

import json
import os
import re
import tempfile
from pathlib import Path

import pytest

from paretune.cli import main
from paretune.commands import demo
from paretune.core.errors import BadInput
from paretune.core.secrets import printable_json
from paretune.specification.profile import OWN_FILE, read_profile


@pytest.mark.slow
def test_the_demo_prints_what_readme_shows_and_leaves_the_users_store_alone(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "ours.toml").write_text("no profile of a demo")
    monkeypatch.setenv("PARETUNE_PROFILE", "ours.toml")
    monkeypatch.setenv("PARETUNE_STORAGE", "postgresql://server/studies")
    monkeypatch.setattr(demo.webbrowser, "open", lambda _: pytest.fail("it opened a browser"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = {path.name for path in workplace.iterdir()}
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    shown = readme.partition("make demo\n")[2].partition("```text\n")[2].partition("```")[0]

    answer = demo.run_demo(demo.DemoRequest(open=False))
    output, printed = json.loads(printable_json(answer.to_dict())), [line for line in str(answer).splitlines() if line]

    assert output["origin"] == "simulated"
    assert "Simulated" in (page := Path(output["page"]).read_text())
    assert "in doubt" not in page, "its prices of 2021 are those of the published jobs"
    command = f"mlflow ui --backend-store-uri {output['tracking_uri']}  # then open http://127.0.0.1:5000/#/experiments/0/runs?"
    assert output["open_command"] == f"{command}viewStateShareKey={output['run_id']}&workflowType=machine_learning"
    picked = [each["means"] for each in output["recommended"]]
    of_front = [float(each["f1_mean"]) for each in output["trials"] if each["pareto_rank"] == 0]
    assert max(of_front) - min(of_front) > 0.005  # there is a choice
    assert max(each["job_seconds"] for each in picked) > 2 * min(each["job_seconds"] for each in picked)
    assert Path(output["page"]).is_relative_to(workplace / ".paretune" / "demo")
    assert {path.name for path in workplace.iterdir()} - before <= {".paretune"}
    assert not [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()]
    assert any(f"and an empty folder in {tmp_path / 'temporary'}." in line for line in printed)
    assert printed[: len(shown.splitlines())] == shown.splitlines()
    assert any("# then open http" in line for line in printed)  # MLflow itself opens a page for traces

    said = capsys.readouterr().err + str(answer)
    assert said.count("github.com/aws-samples/amazon-sagemaker-huggingface-benchmark") == 2
    assert "it takes about half a minute" in said
    assert re.search(r"Simulated in \d[\d.]* (s|m)", said)
    monkeypatch.delenv("PARETUNE_PROFILE")
    monkeypatch.delenv("PARETUNE_STORAGE")
    (workplace / "reviews.csv").write_text("text,label\n" + "good,1\nbad,0\n" * 40)
    steps = [line.partition("#")[0].split() for line in printed[-3:]]
    assert [words[:4] for words in steps] == [
        ["paretune", command, "--dataset", "reviews.csv"] for command in ("train", "estimate", "study")
    ]
    for words in steps:
        dry = ["--dry_run"] * (words[1] == "train")
        assert main([*words[1:], *dry]) == 0, capsys.readouterr()


def test_a_folder_demo_of_the_user_is_left_alone(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thesis = workplace / ".paretune" / "demo" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")

    assert main(["demo", "--open", "false"]) == 2

    assert "was not created by the demo: move it" in capsys.readouterr().err
    assert thesis.read_text() == "mine"


def test_a_second_demo_at_the_same_time_does_not_remove_the_first_ones_store(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workplace / ".paretune" / "demo"
    answers = []

    def second(*_: object, **__: object) -> None:
        (folder / "runs.db").write_text("of the first")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PARETUNE_HOME", str(folder.parent))
            patch.setattr("paretune.studies.run.run_study_file", lambda *_, **__: pytest.fail("it plays"))
            answers.append((main(["demo", "--open", "false"]), (folder / "runs.db").read_text()))
        raise BadInput(["the first one ends here"])

    monkeypatch.setattr("paretune.studies.run.run_study_file", second)  # begins while the first one runs
    assert main(["demo", "--open", "false"]) == 2

    assert answers == [(2, "of the first")]
    assert f"another demo is running in {folder}" in capsys.readouterr().err.replace("\n", " ")
    assert main(["demo", "--open", "false"]) == 2  # the first demo has ended, so the next one may begin
    assert len(answers) == 2


def test_the_demo_takes_no_budget_from_the_profile_of_the_user(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workplace))
    monkeypatch.delenv("PARETUNE_PROFILE", raising=False)
    own = workplace / OWN_FILE.removeprefix("~/")
    own.parent.mkdir(exist_ok=True)
    own.write_text('budget = "team.yaml"\n')
    read = []

    def end(*_: object, **__: object) -> None:
        read.append(read_profile(os.environ))
        raise BadInput(["enough"])

    monkeypatch.setattr("paretune.studies.run.run_study_file", end)
    assert read_profile(os.environ) != {}
    assert main(["demo", "--open", "false"]) == 2

    assert read == [{}]
