"""The command line of a plain script: its own arguments, by its own names."""

from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.specification.script_arguments import argument_faults, script_arguments
from paretune.studies.definition.file import StudyFile

PLAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.3)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--epochs", type=int)
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--output-dir")
args, _ = parser.parse_known_args()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PLAIN)
    return path


def words(script: Path, **values: Any) -> str:
    spec = JobSpec(entry_script=str(script), **values)
    return " ".join(script_arguments(spec, spec.plan(), "/out"))


def test_what_the_user_does_not_set_has_the_default_of_the_script(script: Path) -> None:
    assert words(script) == "--output-dir /out"


def test_the_scripts_own_arguments_are_passed_as_it_spells_them(script: Path) -> None:
    arguments = {"batch_size": 8, "epochs": 2.0, "quiet": True}

    assert words(script, training_arguments=arguments) == "--output-dir /out --batch-size 8 --epochs 2 --quiet"
    assert words(script, training_arguments={"quiet": False}) == "--output-dir /out"


def test_parameters_are_passed_by_the_names_that_the_user_maps_them_to(script: Path) -> None:
    names = {"learning_rate": "lr", "per_device_train_batch_size": "batch_size", "num_train_epochs": "epochs"}

    line = words(script, learning_rate=0.01, global_batch_size=64, per_device_train_batch_size=32, argument_names=names)

    assert line == "--output-dir /out --batch-size 32 --lr 0.01 --epochs 1"


def test_a_script_with_the_usual_names_gets_what_is_set(script: Path) -> None:
    script.write_text(
        "p.add_argument('--learning_rate')\np.add_argument('--num_train_epochs')\np.add_argument('--seed')\n"
        "p.add_argument('--model_name')\np.add_argument('--train_file')\n"
    )
    (script.parent / "rows.csv").touch()
    rows = str(script.parent / "rows.csv")

    assert words(script) == "--num_train_epochs 1"
    line = words(script, learning_rate=1e-4, seed=7, model="bert-tiny", dataset=rows)
    assert line == f"--learning_rate 0.0001 --num_train_epochs 1 --seed 7 --model_name bert-tiny --train_file {rows}"


def test_a_name_of_argument_names_that_the_script_lacks_is_refused_although_it_is_not_used_yet(script: Path) -> None:
    (fault,) = argument_faults(JobSpec(entry_script=str(script), argument_names={"learning_rate": "lrr"}))

    assert fault.startswith("train.py has no argument lrr: it has batch-size, epochs, lr")


def test_a_parameter_that_argument_names_cannot_map_is_refused_with_the_nearest(script: Path) -> None:
    with pytest.raises(BadInput, match=r"learning_rat is not one that it maps: did you mean learning_rate\?"):
        JobSpec(entry_script=str(script), argument_names={"learning_rat": "lr"})


def test_data_model_and_global_batch_are_passed_by_the_names_that_they_are_mapped_to(script: Path) -> None:
    script.write_text("p.add_argument('--rows')\np.add_argument('--net')\np.add_argument('--total-batch')\n")
    names = {"dataset": "rows", "model": "net", "global_batch_size": "total-batch"}

    line = words(script, dataset="imdb", model="bert-tiny", global_batch_size=32, argument_names=names)

    assert line == "--total-batch 32 --net bert-tiny --rows imdb"


@pytest.mark.parametrize(("call", "command"), [("LightningCLI(Model, run=False)", ""), ("cli.LightningCLI()", "fit ")])
def test_a_lightning_cli_writes_into_the_folder_of_the_model(script: Path, call: str, command: str) -> None:
    script.write_text(f"from lightning.pytorch.cli import LightningCLI\n{call}\n")

    line = words(script, seed=7, training_arguments={"data.batch_size": 8})

    assert line == f"{command}--trainer.default_root_dir /out --seed_everything 7 --data.batch_size 8"


def test_a_parameter_without_an_argument_is_refused_with_the_arguments_that_there_are(script: Path) -> None:
    spec = JobSpec(entry_script=str(script), learning_rate=0.1, training_arguments={"epoch": 3, "lr": 1})

    (fault,) = argument_faults(spec)

    assert fault.startswith("train.py has no argument learning_rate, epoch: it has batch-size, epochs, lr, output-dir")
    assert "argument_names" in fault
    assert argument_faults(spec.replace(learning_rate=None, training_arguments={"lr": 1})) == []


def test_a_study_searches_arguments_by_the_scripts_own_names(script: Path) -> None:
    study = script.parent / "study.yaml"
    text = (
        "name: plain\nentry_script: train.py\nargument_names: {num_train_epochs: epochs}\n"
        "search: {lr: {low: 0.01, high: 0.1}, batch_size: {choices: [8, 16]}, num_train_epochs: {choices: [1, 2]}}\n"
        "objectives: {cost_usd: minimize, val_loss: minimize}\nn_trials: 2\n"
    )
    study.write_text(text)

    file = StudyFile.read(str(study), {})

    point = {"training_arguments.lr": 0.05, "training_arguments.batch-size": 8, "num_train_epochs": 1.0}
    spec = file.spec_at(point)
    assert " ".join(script_arguments(spec, spec.plan(), "/out")) == (
        "--output-dir /out --epochs 1 --batch-size 8 --lr 0.05"
    )
    script.write_text("from lightning.pytorch.cli import LightningCLI\n")
    study.write_text(
        text.replace("lr:", "model.learning_rate:").replace("argument_names: {num_train_epochs: epochs}", "")
    )
    assert "training_arguments.model.learning_rate" in StudyFile.read(str(study), {}).search
    script.write_text(PLAIN)
    study.write_text(text.replace("{lr:", "{rate:"))
    with pytest.raises(BadInput, match=r"unknown parameter rate: train\.py has the arguments lr, batch-size, epochs"):
        StudyFile.read(str(study), {})
