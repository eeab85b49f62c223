"""Options of scripts that libraries parse, read from the text of the script or from its `--help`.

The libraries are not needed: the help texts are those of click 8.5, typer 0.29, fire 0.7 and absl-py 2.5, and Hydra's
overrides were tried with hydra-core 1.3.
"""

import argparse
from pathlib import Path
from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.user_code.arguments import Accepted, accepted_by_help
from paretune.user_code.script import Script
from tests.support.bound_scripts import argument_faults, script_arguments

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


@pytest.mark.trains  # its arguments are those of transformers
def test_a_name_that_a_script_does_not_have_is_refused_with_its_right_spelling(script: Path) -> None:
    script.write_text(HUGGING_FACE)

    (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments={**DATA, "learning_rat": 0.5}))

    assert fault.startswith("train.py has no argument learning_rat: did you mean learning_rate?")


@pytest.mark.trains
def test_a_class_derived_from_training_arguments_has_its_fields_too(script: Path) -> None:
    derived = "@dataclass\nclass Own(TrainingArguments):\n    margin: float = 0.1\n"
    script.write_text(
        HUGGING_FACE.replace("HfArgumentParser((Mine, TrainingArguments))", f"{derived}HfArgumentParser(Own)")
    )

    own = Script.read(script)

    assert own.is_complete
    assert {"margin", "weight_decay"} <= {*own.names}


@pytest.mark.parametrize("marker", ["KW_ONLY", "dataclasses.KW_ONLY"])
def test_the_marker_of_keyword_only_fields_is_no_argument(script: Path, marker: str) -> None:
    script.write_text(HUGGING_FACE.replace("data_dir: str\n", f"data_dir: str\n    _: {marker}\n"))

    assert words(script, **DATA).replace("-", "_").endswith("__data_dir d")


def test_what_a_script_needs_is_asked_for_before_it_runs(script: Path) -> None:
    script.write_text(HUGGING_FACE)

    (fault,) = argument_faults(JobSpec(entry_script=str(script)))

    assert fault.startswith("train.py does not run without --data_dir: add --training_arguments.data_dir")


@pytest.mark.parametrize(
    "text",
    [
        "import click\n@click.command()\n@click.option('--learning-rate')\ndef main(learning_rate): ...\nmain()\n",
        "import typer\ndef main(learning_rate: float = 0.1): ...\ntyper.run(main)\n",
        "import fire\ndef main(**settings): ...\nfire.Fire(main)\n",
        "from absl import flags\nflags.DEFINE_float('rate', 0.1, 'x')\n",
        "import tyro\nfrom somewhere import Config\ntyro.cli(Config)\n",
        "from docopt import docopt\ndocopt(__doc__)\n",
    ],
)
def test_a_script_whose_options_only_its_help_shows_is_asked_for_with_one_option(script: Path, text: str) -> None:
    script.write_text(text)
    given = {"entry_script": str(script), "learning_rate": 0.5}

    (fault,) = argument_faults(JobSpec.read(given))

    assert fault.endswith(": paretune reads them by running train.py --help without network: add --ask_script true")
    assert argument_faults(JobSpec(entry_script=str(script))) == []  # without options there is nothing to ask


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import fire\nfire.Fire({'net': net, 'pipeline': pipeline})\n", "net or pipeline"),
        ("import fire\ndef fit(lr=1): ...\ndef test(): ...\nfire.Fire()\n", "fit or test"),
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "commands = parser.add_subparsers(dest='command', required=True)\n"
            "commands.add_parser('fit').add_argument('--lr')\ncommands.add_parser('test')\nparser.parse_args()\n",
            "fit or test",
        ),
    ],
)
def test_a_script_with_subcommands_is_refused_with_the_words_that_it_needs(script: Path, text: str, words: str) -> None:
    script.write_text(text)

    faults = argument_faults(JobSpec(entry_script=str(script), training_arguments={"lr": 0.5}))

    assert faults[0].startswith(f"train.py needs the word {words} before its options")


def test_an_option_stands_after_the_subcommands_whose_parsers_declare_it(script: Path) -> None:
    script.write_text(
        "import argparse\n"
        "common = argparse.ArgumentParser(add_help=False)\n"
        "common.add_argument('--seed')\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--verbose', action='store_true')\n"
        "commands = parser.add_subparsers(dest='command')\n"
        "one = commands.add_parser('train', parents=[common])\n"
        "group = one.add_argument_group('optimizer')\n"
        "group.add_argument('--lr')\n"
        "one.add_argument('--out')\n"
        "one = commands.add_parser('test', parents=[common])\n"
        "one.add_argument('--out')\n"
        "def more(p):\n"
        "    p.add_argument('--depth')\n"
    )

    places = {each.name: each.commands for each in Script.read(script).arguments}

    assert places == {
        "verbose": (),
        "seed": ("train", "test"),
        "lr": ("train",),
        "out": ("train", "test"),
        "depth": ("train", "test"),
    }


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
    assert Script.read(script).reported.metrics == ("rate",)

    (conf / "config.yaml").write_text("epochs: 1\nrate: 0.1\n")

    assert argument_faults(spec) == []
    assert Script.read(script).reported.metrics == ()


@pytest.mark.parametrize(
    "text",
    [
        "from trl import SFTConfig, TrlParser\nTrlParser((SFTConfig,))\n",
        "import hydra\n@hydra.main(config_name='config')\ndef main(c): ...\nmain()\n",
    ],
)
def test_a_script_whose_text_hides_its_options_gets_the_names_as_typed(script: Path, text: str) -> None:
    script.write_text(text)

    own = Script.read(script)

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


def switches(found: Accepted) -> dict[str, str]:
    """Return for each option its opposite, whether it is a switch, or "" if it takes a value."""
    return {
        each.name: f"or {each.off}" if each.off else "" if each.switch is None else "a switch"
        for each in found.arguments
    }


@pytest.mark.parametrize("text", [ARGPARSE_HELP, CLICK_HELP, TYPER_HELP])
def test_the_answer_to_help_names_options_and_switches(text: str) -> None:
    found = accepted_by_help(text)

    assert switches(found) == {"learning-rate": "", "mode": "", "quiet": "a switch", "shuffle": "or no-shuffle"}
    assert found.is_complete
    assert [each.name for each in found.arguments if each.is_required] == ["learning-rate"] * (text is TYPER_HELP)


def test_options_of_absl_and_fire_are_read_from_their_help() -> None:
    absl = "train.py:\n  --[no]fast: hurry\n    (default: 'true')\n  --learning_rate: the rate\n    (a number)\n"
    fire = "NAME\n    train.py\n\nSYNOPSIS\n    train.py D <flags>\n\nFLAGS\n    -l, --learning_rate=LEARNING_RATE\n"

    assert switches(accepted_by_help(absl)) == {"fast": "or nofast", "learning_rate": ""}
    assert switches(accepted_by_help(fire)) == {"learning_rate": ""}
    assert not accepted_by_help(fire).is_complete  # it lists those without a default elsewhere


@pytest.mark.parametrize(
    "text",
    [
        "Usage: t.py COMMAND\n\nOptions:\n  --help  Show.\n\nCommands:\n  net       Train.\n  pipeline  Both.\n",
        "╭─ Options ────╮\n│ --help  Show │\n╰──────────────╯\n╭─ Commands ───╮\n│ net       A. │\n│ pipeline  B. │\n",
        "NAME\n    t.py\n\nCOMMANDS\n    COMMAND is one of the following:\n\n     net\n       A.\n\n     pipeline\n",
    ],
)
def test_subcommands_are_read_from_help(text: str) -> None:
    assert accepted_by_help(text).commands == ("net", "pipeline")


def test_options_without_a_parser_are_none(script: Path) -> None:
    script.write_text("print('f1: 1')\n")
    own: Script = Script.read(script)
    assert (own.is_complete, own.arguments) == (True, ())


@pytest.mark.parametrize(
    ("count", "name"), [("...", "opts"), ("*", "opts"), ("+", "opts"), ("?", ""), (None, ""), ("option", "")]
)
def test_help_of_argparse_shows_the_argument_that_takes_any_number_of_words(count: str | None, name: str) -> None:
    parser = argparse.ArgumentParser(prog="train_net.py", description="Train a detector ...")
    parser.add_argument("--config-file", metavar="FILE")
    parser.add_argument("rows")
    parser.add_argument("--opts" if count == "option" else "opts", nargs="*" if count == "option" else count)

    assert accepted_by_help(parser.format_help()).trailing == name


def test_the_defaults_in_a_help_text_are_those_of_the_arguments() -> None:
    text = """usage: main.py [-h]

  --model.learning_rate LEARNING_RATE
                        (type: float, default: 0.0001)
  --batch_size INTEGER  rows  [default: 32]
  --epochs N            passes over the rows (default: 3)
  --name TEXT           (type: str, default: adam)
  --fast                quick [default: 1]
"""

    defaults = {each.name: each.default for each in accepted_by_help(text).arguments}

    assert defaults == {"model.learning_rate": 0.0001, "batch_size": 32, "epochs": 3, "name": None, "fast": None}
