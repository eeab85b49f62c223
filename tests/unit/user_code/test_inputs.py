"""A script is checked before its job: first its files, then its arguments."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
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
