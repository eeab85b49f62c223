"""A script is checked before its job: first its files, then its arguments."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.user_code.inputs import code_of
from tests.support.bound_scripts import script_inputs


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    declared = "parser = argparse.ArgumentParser()\nparser.add_argument('--train_file')\n"
    path.write_text(f"import argparse\n{declared}parser.parse_args()\n")
    return path


def test_the_data_of_a_script_are_channels_of_its_job(script: Path) -> None:
    (script.parent / "rows.csv").touch()

    inputs = script_inputs(JobSpec(entry_script=str(script), dataset=str(script.parent / "rows.csv")))

    assert inputs.code is not None
    assert [*inputs.code.inputs.values()] == [script.parent / "rows.csv"]


@pytest.mark.parametrize("arguments", [{}, {"epochs": 3}], ids=["no wrong argument", "a wrong argument"])
def test_a_file_that_is_missing_is_refused_before_any_argument_is_judged(
    script: Path, arguments: dict[str, int]
) -> None:
    absent = str(script.parent / "absent.csv")
    with pytest.raises(BadInput) as refused:
        script_inputs(JobSpec(entry_script=str(script), dataset=absent, training_arguments=arguments))

    (fault,) = refused.value.faults
    assert absent in fault


def test_an_argument_that_a_script_does_not_have_is_refused(script: Path) -> None:
    with pytest.raises(BadInput, match="has no argument epochs"):
        script_inputs(JobSpec(entry_script=str(script), training_arguments={"epochs": 3}))


def test_a_larger_budget_and_results_of_a_run_do_not_make_other_code(tmp_path: Path) -> None:
    budget, train = tmp_path / "team.yaml", tmp_path / "train.py"
    train.write_text("print('loss: 1')")
    budget.write_text("budgets: [{name: all, usd_per_month: 5}]\n")
    spec = JobSpec(entry_script=str(train), instance_type="ml.m5.large", max_runtime_minutes=5)

    def key() -> str:
        code = code_of(spec.code_request)
        return code.key(code.files(travels=True))

    first = key()
    budget.write_text("budgets: [{name: all, usd_per_month: 50}]\n")
    (tmp_path / "all_results.json").write_text('{"f1": 0.9}')

    assert key() == first
    (tmp_path / "settings.yaml").write_text("dropout: 0.1\n")
    assert key() != first
