"""Options of scripts that other libraries parse, read from the text of the script or from its `--help`.

The libraries are not needed: the expected words were tried with click 8.5, typer 0.29, fire 0.7, absl-py 2.5, tyro 1.0,
jsonargparse 4.53, simple-parsing 0.1.9, docopt 0.6 and hydra-core 1.3.
"""

from pathlib import Path
from typing import Any

import pytest

from paretune.core.own_script import OwnScript, read_own_script
from paretune.core.script_options import options_in_help
from paretune.specification.job import JobSpec
from paretune.specification.script_arguments import argument_faults, script_arguments

CLICK = """
import click
@click.command()
@click.option("--learning-rate", "rate", type=float, default=0.1)
@click.option("-e", "--epochs", default=1)
@click.option("--fast/--no-fast", default=True)
@click.option("--quiet", is_flag=True)
@click.option("--shout/--whisper")
@click.option("--data-dir", required=True)
def main(rate, epochs, fast, quiet, shout, data_dir): ...
main()
"""
TYPER = """
import typer
from typing import Annotated, Optional
def main(
    learning_rate: float = 0.1,
    epochs: Annotated[int, typer.Option("--epochs", "-e")] = 1,
    fast: bool = True,
    quiet: Annotated[bool, typer.Option("--quiet")] = False,
    name: Annotated[Optional[str], typer.Option()] = None,
    data_dir: str = typer.Option(..., help="where it is"),
): ...
typer.run(main)
"""
FIRE = """
import fire
def main(data_dir, learning_rate=0.1, fast=True): ...
if __name__ == "__main__":
    fire.Fire(main)
"""
ABSL = """
from absl import app, flags
FLAGS = flags.FLAGS
flags.DEFINE_float("learning_rate", 0.1, "the rate")
flags.DEFINE_bool("fast", True, "whether to hurry")
flags.DEFINE_string("data_dir", None, "where it is", required=True)
def main(_): ...
app.run(main)
"""
TYRO = """
import dataclasses, tyro
@dataclasses.dataclass
class Optimizer:
    learning_rate: float = 0.1
    fast: bool = True
@dataclasses.dataclass
class Config:
    data_dir: str
    optimizer: Optimizer = dataclasses.field(default_factory=Optimizer)
tyro.cli(Config)
"""
JSONARGPARSE = """
import jsonargparse
def main(learning_rate: float = 0.1, fast: bool = True): ...
jsonargparse.auto_cli(main)
"""
SIMPLE_PARSING = """
from dataclasses import dataclass
from simple_parsing import ArgumentParser
@dataclass
class Config:
    data_dir: str
    learning_rate: float = 0.1
    fast: bool = True
parser = ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_arguments(Config, dest="config")
parser.parse_args()
"""
DOCOPT = '''"""Train.

Usage: train.py [options]

Options:
  --learning-rate=RATE  the rate [default: 0.1]
  --fast                hurry
"""
from docopt import docopt
docopt(__doc__)
'''
HUGGING_FACE = """
from dataclasses import dataclass
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class Mine:
    data_dir: str
    fast: bool = True
HfArgumentParser((Mine, TrainingArguments)).parse_args_into_dataclasses()
"""
DATA = {"data_dir": "d"}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def words(script: Path, **values: Any) -> str:
    rate = {"learning_rate": values.pop("learning_rate", None)}
    spec = JobSpec.read({"entry_script": str(script), "training_arguments": values, **rate})
    assert argument_faults(spec) == []
    return " ".join(script_arguments(spec, spec.plan(), "/out"))


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        (CLICK, {**DATA, "learning_rate": 0.5, "epochs": 2}, "--learning-rate 0.5 --data-dir d --epochs 2"),
        (CLICK, {**DATA, "fast": False, "quiet": True, "shout": False}, "--data-dir d --no-fast --quiet --whisper"),
        (CLICK, {**DATA, "fast": "true", "quiet": False, "whisper": False}, "--data-dir d --fast --shout"),
        (TYPER, {**DATA, "learning_rate": 0.5, "epochs": 2, "fast": True, "quiet": True}, "--learning-rate 0.5 "
         "--data-dir d --epochs 2 --fast --quiet"),
        (TYPER, {**DATA, "fast": False, "name": "x"}, "--data-dir d --no-fast --name x"),
        (FIRE, {**DATA, "learning_rate": 0.5, "fast": False}, "--learning_rate 0.5 --data_dir d --fast False"),
        (ABSL, {**DATA, "learning-rate": 0.5, "fast": False}, "--data_dir d --learning_rate 0.5 --nofast"),
        (TYRO, {**DATA, "optimizer.learning_rate": 0.5, "optimizer.fast": False}, "--data-dir d "
         "--optimizer.learning-rate 0.5 --optimizer.no-fast"),
        (JSONARGPARSE, {"learning_rate": 0.5, "fast": False}, "--learning_rate 0.5 --fast false"),
        (SIMPLE_PARSING, {**DATA, "learning-rate": 0.5, "fast": False, "device": "x"}, "--data_dir d "
         "--learning_rate 0.5 --fast false --device x"),
        (DOCOPT, {"learning_rate": 0.5, "fast": True}, "--learning-rate 0.5 --fast"),
    ],
)  # fmt: skip
def test_options_are_passed_as_the_library_of_the_script_spells_them(
    script: Path, text: str, values: dict[str, Any], expected: str
) -> None:
    script.write_text(text)

    assert words(script, **values) == expected


@pytest.mark.parametrize(
    "text",
    [
        CLICK,
        TYPER,
        FIRE,
        ABSL,
        TYRO,
        SIMPLE_PARSING,
        DOCOPT,
        JSONARGPARSE,
        pytest.param(HUGGING_FACE, marks=pytest.mark.trains),
    ],  # its arguments are those of transformers
)
def test_a_name_that_a_script_does_not_have_is_refused_with_its_right_spelling(script: Path, text: str) -> None:
    script.write_text(text)

    given = {**DATA, "learning_rat": 0.5} if "data_dir" in text else {"learning_rat": 0.5}
    (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments=given))

    assert fault.startswith("train.py has no argument learning_rat: did you mean ")
    assert fault.partition("did you mean ")[2].partition("?")[0].replace("-", "_").endswith("learning_rate")


@pytest.mark.parametrize("text", [TYRO, SIMPLE_PARSING, HUGGING_FACE])
@pytest.mark.parametrize("marker", ["KW_ONLY", "dataclasses.KW_ONLY"])
def test_the_marker_of_keyword_only_fields_is_no_argument(script: Path, text: str, marker: str) -> None:
    script.write_text(text.replace("data_dir: str\n", f"data_dir: str\n    _: {marker}\n"))

    assert words(script, **DATA).replace("-", "_").endswith("__data_dir d")


@pytest.mark.parametrize("text", [CLICK, TYPER, FIRE, ABSL, TYRO, SIMPLE_PARSING, HUGGING_FACE])
def test_what_a_script_needs_is_asked_for_before_it_runs(script: Path, text: str) -> None:
    script.write_text(text)

    (fault,) = argument_faults(JobSpec(entry_script=str(script)))

    assert fault.replace("-", "_").startswith(
        "train.py does not run without __data_dir: add __training_arguments.data_dir"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("import click\n@click.group()\ndef cli(): ...\n@cli.command()\n@click.option('--lr')\ndef train_it(lr): "
         "...\n@cli.command('test')\ndef test(): ...\ncli()\n",
         "train.py needs the word train-it or test before its options"),
        ("import typer\napp = typer.Typer()\n@app.command()\ndef train(lr: float = 1): ...\n@app.command()\n"
         "def test(): ...\napp()\n", "train.py needs the word train or test before its options"),
        (TYPER.replace("def main(", "def main(data: str, lr: float,"),
         "train.py takes positional arguments, but paretune passes names"),
        (CLICK.replace('@click.option("--data-dir", required=True)', '@click.argument("data")'),
         "train.py takes positional arguments, but paretune passes names"),
        (CLICK, "--quiet of train.py is a switch and must be true or false, got 3"),
    ],
)  # fmt: skip
def test_a_command_line_that_names_alone_cannot_make_is_refused(script: Path, text: str, fault: str) -> None:
    script.write_text(text)
    given = {"quiet": 3, **DATA} if text == CLICK else {"lr": 0.5}

    faults = argument_faults(JobSpec(entry_script=str(script), training_arguments=given))

    assert faults[0].startswith(fault)


@pytest.mark.parametrize(
    "text",
    [FIRE + "class Trainer:\n    def main(self, mode=True): ...\n", "from helper import load\n" + FIRE],
    ids=["method", "module"],
)
def test_the_options_are_those_of_the_function_that_the_script_starts_not_of_another_with_its_name(
    script: Path, text: str
) -> None:
    (script.parent / "helper.py").write_text("def load(): ...\ndef main(rows=1): ...\n")
    script.write_text(text)

    assert words(script, data_dir="d", learning_rate=0.5) == "--learning_rate 0.5 --data_dir d"


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("def fit(rate=0.1): ...\n", "class Trainer:\n    def fit(self, batch): ...\nfire.Fire(fit)\n"),
        (
            "import typer\napp = typer.Typer()\n@app.command()\ndef fit(rate: float = 0.1): ...\n",
            "def fit(): app()\nfit()\n",
        ),
    ],
    ids=["fire", "typer"],
)
def test_a_function_of_a_module_that_the_script_starts_is_not_hidden_by_another_with_its_name(
    script: Path, module: str, text: str
) -> None:
    (script.parent / "helper.py").write_text(module)
    script.write_text(f"import fire\nfrom helper import *\n{text}")

    own = read_own_script(script)

    assert (list(own.arguments), own.is_complete, own.required) == (["rate"], True, ())


def test_a_script_of_hydra_has_the_keys_of_its_files(script: Path) -> None:
    script.write_text("import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(c): ...\nmain()\n")
    conf = script.parent / "conf"
    (conf / "model").mkdir(parents=True)
    (conf / "config.yaml").write_text("defaults: [_self_, {model: small}]\noptimizer: {lr: 0.1}\nseed: 1\n")
    (conf / "model" / "small.yaml").write_text("hidden: 8\n")
    (conf / "model" / "large.yaml").write_text("hidden: 64\nheads: 4\n")

    line = words(script, **{"optimizer.lr": 0.2, "model": "large", "model.heads": 2, "+new": 1, "hydra.verbose": True})
    assert line == "optimizer.lr=0.2 model=large model.heads=2 +new=1 hydra.verbose=true"
    for name, meant in {"lr": "optimizer.lr", "model.hiden": "model.hidden"}.items():
        (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments={name: 1}))
        assert f"has no argument {name}: did you mean {meant}?" in fault
        assert fault.endswith(f"or +{name} in training_arguments adds a key")


@pytest.mark.parametrize("folder", ["conf", "../settings"])
def test_a_key_added_to_a_file_of_hydra_counts_at_once(script: Path, folder: str) -> None:
    script = script.parent / "src" / "train.py"
    script.parent.mkdir()
    decorator = f"@hydra.main(config_path='{folder}', config_name='config')"
    script.write_text(f"import hydra\n{decorator}\ndef main(c): print('rate:', c.rate)\nmain()\n")
    conf = script.parent / folder
    conf.mkdir()
    (conf / "config.yaml").write_text("epochs: 1\n")
    spec = JobSpec(entry_script=str(script), training_arguments={"rate": 1})
    assert "has no argument rate" in argument_faults(spec)[0]
    assert read_own_script(script).metrics == ("rate",)

    (conf / "config.yaml").write_text("epochs: 1\nrate: 0.1\n")

    assert argument_faults(spec) == []
    assert read_own_script(script).metrics == ()


LIGHTNING = """
from lightning.pytorch.cli import LightningCLI
class Model(LightningModule):
    def __init__(self, width: int = 8, lr: float = 0.1): ...
class Data(LightningDataModule):
    def __init__(self, rows: int = 64): ...
LightningCLI(Model, Data)
"""


def test_lightning_cli_has_the_parameters_of_its_classes_and_any_of_the_trainer(script: Path) -> None:
    script.write_text(LIGHTNING)
    given = {"model.lr": 0.5, "data.rows": 8, "trainer.max_epochs": 2, "optimizer.lr": 0.1, "lr": 1}

    start, unknown = argument_faults(JobSpec(entry_script=str(script), training_arguments={**given, "model.widht": 2}))

    assert "needs the word fit before its options" in start
    assert unknown.startswith(
        "train.py has no argument lr, model.widht: did you mean model.lr?; did you mean model.width?"
    )
    assert len(argument_faults(JobSpec(entry_script=str(script), training_arguments={"trainer.devices": 1}))) == 1


@pytest.mark.parametrize(
    "change",
    [
        ("LightningCLI(Model, Data)", "LightningCLI(Model, Data, subclass_mode_model=True)"),
        ("lr: float = 0.1", "**rest"),
        ("class Model(", "class Base("),
        (
            "LightningCLI(Model, Data)",
            "class Mine(LightningCLI):\n def add_arguments_to_parser(self): ...\nMine(Model)",
        ),
    ],
)
def test_arguments_of_lightning_cli_that_its_text_does_not_show_are_passed_as_typed(
    script: Path, change: tuple[str, str]
) -> None:
    script.write_text(LIGHTNING.replace(*change))

    assert not read_own_script(script).is_complete


@pytest.mark.parametrize(
    "text",
    [
        "import click\nfor name in names:\n    option = click.option(f'--{name}')\n",
        "import fire\nfire.Fire()\n",
        "import fire\nfire.Fire({'train': train})\n",
        "import fire\ndef main(**settings): ...\nfire.Fire(main)\n",
        "from ml_collections import config_flags\nconfig_flags.DEFINE_config_file('config')\n",
        "import tyro\nfrom somewhere import Config\ntyro.cli(Config)\n",
        "from trl import SFTConfig, TrlParser\nTrlParser((SFTConfig,))\n",
        "import hydra\n@hydra.main(config_name='config')\ndef main(c): ...\nmain()\n",
    ],
)
def test_a_script_whose_text_hides_its_options_gets_the_names_as_typed(script: Path, text: str) -> None:
    script.write_text(text)

    own = read_own_script(script)

    assert not own.is_complete
    assert argument_faults(JobSpec(entry_script=str(script), training_arguments={"any_name": 1})) == []


ARGPARSE_HELP = """
usage: train.py [-h] [--learning-rate LEARNING_RATE] [--mode {a,b}] [--quiet] [--shuffle | --no-shuffle]

options:
  -h, --help            show this help message and exit
  -l LEARNING_RATE, --learning-rate LEARNING_RATE
                        the rate; see also --epochs of another program
  --mode {a,b}
  --quiet               less
  --shuffle, --no-shuffle
"""
CLICK_HELP = """
Usage: train.py [OPTIONS]

Options:
  --learning-rate FLOAT  the rate
  --mode [a|b]           with --other
  --quiet
  --shuffle / --no-shuffle
  --help                 Show this message and exit.
"""
TYPER_HELP = """
 Usage: train.py [OPTIONS]

╭─ Options ──────────────────────────────────────────────────────────────────────╮
│ *  --learning-rate  -l                   FLOAT  the rate [required]            │
│    --mode                                TEXT   [default: a]                   │
│    --quiet                               <bool> Less output than usual         │
│    --shuffle            --no-shuffle     <bool> [default: shuffle]             │
│    --help                                       Show this message and exit.    │
╰────────────────────────────────────────────────────────────────────────────────╯
"""


@pytest.mark.parametrize("text", [ARGPARSE_HELP, CLICK_HELP, TYPER_HELP])
def test_the_answer_to_help_names_options_and_switches(text: str) -> None:
    options = options_in_help(text)

    assert dict(options.actions) == {
        "learning-rate": "",
        "mode": "",
        "quiet": "store_true",
        "shuffle": "off:no-shuffle",
        "no-shuffle": "off:shuffle",
    }
    assert options.is_complete
    assert options.required == (("--learning-rate",) if text is TYPER_HELP else ())


def test_options_of_absl_and_fire_are_read_from_their_help() -> None:
    absl = "train.py:\n  --[no]fast: hurry\n    (default: 'true')\n  --learning_rate: the rate\n    (a number)\n"
    fire = "NAME\n    train.py\n\nSYNOPSIS\n    train.py D <flags>\n\nFLAGS\n    -l, --learning_rate=LEARNING_RATE\n"

    assert dict(options_in_help(absl).actions) == {"fast": "off:nofast", "nofast": "off:fast", "learning_rate": ""}
    assert dict(options_in_help(fire).actions) == {"learning_rate": ""}
    assert not options_in_help(fire).is_complete  # it lists those without a default elsewhere


def test_options_without_a_parser_are_none(script: Path) -> None:
    script.write_text("print('f1: 1')\n")
    own: OwnScript = read_own_script(script)
    assert (own.is_complete, dict(own.arguments)) == (True, {})
