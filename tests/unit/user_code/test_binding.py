"""The command line of a plain script: its own arguments, by its own names."""

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from paretune.core.errors import BadInput
from paretune.jobs.card import params_of
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Range, is_whole
from paretune.studies.own_code import with_own_code
from paretune.studies.run import run_study
from paretune.user_code import binding
from paretune.user_code.binding import OF_SCRIPTS, bind
from paretune.user_code.inputs import code_inputs
from tests.support.bound_scripts import (
    argument_faults,
    bound,
    script_arguments,
    script_in_words,
    script_inputs,
    script_of,
)

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
FORMATS = ("bf16", "fp16")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PLAIN)
    return path


def accumulates(spec: JobSpec) -> bool:
    return bound(spec).accumulates


def takes_seed(spec: JobSpec) -> bool:
    return bound(spec).takes_seed


def words(script: Path, **values: Any) -> str:
    spec = JobSpec(entry_script=str(script), **values)
    return " ".join(script_arguments(spec, spec.plan(), "/out"))


def test_the_scripts_own_arguments_are_passed_as_it_spells_them(script: Path) -> None:
    arguments = {"batch_size": 8, "epochs": 2.0, "quiet": True}

    assert words(script) == "--output-dir /out"  # what is not given has the default of the script
    assert words(script, training_arguments=arguments) == "--output-dir /out --batch-size 8 --epochs 2 --quiet"
    assert words(script, training_arguments={"quiet": False}) == "--output-dir /out"
    script.write_text(PLAIN + "parser.add_argument('--shuffle', type=bool, default=True)\n")
    assert words(script, training_arguments={"shuffle": False}).endswith("--shuffle ")


@pytest.mark.parametrize(("value", "word"), [("on", "on"), (2, "2"), (None, "nothing")])
def test_an_option_of_type_bool_must_be_true_or_false(script: Path, value: object, word: str) -> None:
    script.write_text(PLAIN + "parser.add_argument('--shuffle', type=bool, default=True)\n")

    (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments={"shuffle": value}))

    assert fault == f"--shuffle of train.py must be true or false, got {word}"


def test_a_script_whose_parser_a_library_extends_gets_no_seed_and_needs_its_required_arguments(script: Path) -> None:
    more = "parser.add_argument('--data', required=True)\nseed = 1\nparser = deepspeed.add_config_arguments(parser)\n"
    script.write_text(f"import deepspeed\n{PLAIN}{more}")
    given = {"data": "x", "deepspeed_config": "ds.json"}

    assert words(script, seed=3) == "--output-dir /out"  # a repeat of a study
    (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments={"deepspeed_config": "ds.json"}))
    assert fault.startswith("train.py does not run without --data")
    assert argument_faults(JobSpec(entry_script=str(script), training_arguments=given)) == []


def test_a_script_may_have_the_highest_seed(script: Path) -> None:
    spec = JobSpec(entry_script=str(script), seed=2**32 - 1)

    assert not takes_seed(spec)
    script.write_text(f"{PLAIN}parser.add_argument('--seed')\n")
    assert takes_seed(spec)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (f"{PLAIN}parser.add_argument('--layers', type=int, nargs='+')\n", "--layers 1 2"),
        (f"{PLAIN}parser.add_argument('--layers', action='append')\n", "--layers 1 --layers 2"),
        (f"{PLAIN}parser.add_argument('--layers', nargs='+', action='extend')\n", "--layers 1 2"),
        (f"{PLAIN}parser.add_argument('--layers')\n", "--layers [1, 2]"),
    ],
)
def test_a_list_is_passed_as_the_library_reads_several_values(script: Path, body: str, line: str) -> None:
    script.write_text(body)

    passed = words(script, training_arguments={"layers": [1, 2]}).removeprefix("--output-dir /out ")

    assert passed == line


def test_argparse_reads_a_value_that_begins_with_a_minus(script: Path) -> None:
    script.write_text(f"{PLAIN}parser.add_argument('--note')\nargs = parser.parse_args()\nprint(args.lr, args.note)\n")
    spec = JobSpec(entry_script=str(script), training_arguments={"lr": -1e-05, "note": "-x"})

    command = [sys.executable, str(script), *script_arguments(spec, spec.plan(), "/out")]

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "-1e-05 -x\n"
    assert script_in_words(spec)["its own defaults"] == "batch-size, epochs, quiet"


def test_files_in_the_home_folder_are_passed_with_their_whole_path(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "rows.jsonl").touch()
    own = "".join(f"parser.add_argument('--{name}')\n" for name in ("dataset", "test_file"))
    script.write_text(PLAIN + own)

    line = words(script, dataset="~/rows.jsonl", test_file="~/t.csv")

    assert line == f"--output-dir /out --dataset {tmp_path}/rows.jsonl --test_file {tmp_path}/t.csv"
    script.write_text("from transformers import HfArgumentParser\n")
    assert f"--train_file {tmp_path}/rows.jsonl" in words(script, dataset="~/rows.jsonl")


@pytest.mark.parametrize(
    ("option", "name", "passed_for"),
    [
        ("'--no-shuffle', dest='shuffle'", "no-shuffle", True),
        ("'--no-shuffle', dest='no_shuffle'", "no-shuffle", False),
        ("'--shuffle'", "shuffle", False),
    ],
)
def test_a_switch_that_stores_false_is_passed_for_the_value_that_its_name_says(
    script: Path, option: str, name: str, passed_for: bool
) -> None:
    script.write_text(PLAIN + f"parser.add_argument({option}, action='store_false')\n")

    for value in (True, False):
        line = words(script, training_arguments={name: value})
        assert line == "--output-dir /out" + f" --{name}" * (value is passed_for)


def test_a_parameter_is_passed_by_the_name_that_the_script_has_for_it(script: Path) -> None:
    line = words(script, learning_rate=0.01, global_batch_size=64, num_train_epochs=1)

    assert line == "--output-dir /out --batch-size 64 --lr 0.01 --epochs 1"  # the script accumulates no gradients
    both = JobSpec(entry_script=str(script), global_batch_size=64, per_device_train_batch_size=32)
    assert "train.py has no argument gradient_accumulation_steps" in argument_faults(both)[0]
    assert not accumulates(both)  # so a retry with a smaller batch, which it would not get, is avoided
    script.write_text("from transformers import HfArgumentParser\n")
    assert accumulates(both)


def test_a_batch_that_a_script_with_accumulation_would_not_get_is_refused(script: Path) -> None:
    text = PLAIN.replace("--batch-size", "--micro_batch_size")
    script.write_text(f"{text}parser.add_argument('--gradient_accumulation_steps')\n")

    for name in ("per_device_train_batch_size", "global_batch_size"):
        (fault,) = argument_faults(JobSpec(entry_script=str(script), **{name: 8}))
        assert fault.startswith("train.py has no argument per_device_train_batch_size")
    line = words(script, gradient_accumulation_steps=4, training_arguments={"micro_batch_size": 2})
    assert line == "--output-dir /out --gradient_accumulation_steps 4 --micro_batch_size 2"


def test_a_script_can_use_smaller_batches_only_if_it_gets_its_batch(script: Path) -> None:
    accumulation = "parser.add_argument('--gradient_accumulation_steps', type=int)\n"
    script.write_text(PLAIN + accumulation)

    assert not accumulates(JobSpec(entry_script=str(script)))  # it has the batch that it chooses itself
    assert accumulates(JobSpec(entry_script=str(script), global_batch_size=16))
    script.write_text(PLAIN.replace("--batch-size", "--micro_batch_size") + accumulation)
    assert not accumulates(JobSpec(entry_script=str(script), gradient_accumulation_steps=4))


@pytest.mark.parametrize(("fields", "expected"), [("", False), ("    gradient_accumulation_steps: int = 1\n", True)])
def test_a_script_with_its_own_fields_accumulates_only_if_it_declares_the_steps(
    script: Path, fields: str, expected: bool
) -> None:
    script.write_text(
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass Arguments:\n"
        "    learning_rate: float = 5e-5\n    per_device_train_batch_size: int = 8\n"
        + fields
        + "HfArgumentParser(Arguments).parse_args_into_dataclasses()\n"
    )

    assert accumulates(JobSpec(entry_script=str(script))) is expected
    job = JobSpec(entry_script=str(script), per_device_train_batch_size=8, gradient_accumulation_steps=4)
    lost = "train.py has no argument gradient_accumulation_steps, so it cannot train with per_device_train_batch_size=8"
    assert [fault[: len(lost)] for fault in argument_faults(job)] == [lost] * (not expected)
    for given in ({}, {"global_batch_size": 128}):  # which one GPU reaches only by accumulation
        types = {"instance_type": "ml.p4d.24xlarge", "fallback_instance_types": "ml.g5.xlarge"}
        assert bool(argument_faults(JobSpec(entry_script=str(script), **types, **given))) is not expected


def test_a_batch_that_a_script_gets_under_its_own_name_is_accepted(script: Path) -> None:
    script.write_text(
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass Arguments:\n"
        "    batch_size: int = 8\nHfArgumentParser(Arguments).parse_args_into_dataclasses()\n"
    )
    job = JobSpec(entry_script=str(script), per_device_train_batch_size=4)
    for given in ({}, {"training_arguments": {"batch_size": 4}}):
        assert script_arguments(job.replace(**given), job.plan(), "out") == ["--batch_size", "4"]
        assert not argument_faults(job.replace(**given))

    types = {"instance_type": "ml.p4d.24xlarge", "fallback_instance_types": "ml.g5.xlarge"}
    (fault,) = argument_faults(job.replace(**types))  # fewer devices need accumulation
    assert fault.endswith("which it does not have: leave fallback_instance_types out")

    steps = "    batch_size: int\n    gradient_accumulation_steps: int = 1\n"  # a required batch, and accumulation
    script.write_text(script.read_text().replace("    batch_size: int = 8\n", steps))
    assert accumulates(job)
    assert not argument_faults(job)
    first, moved = JobSpec(entry_script=str(script), **types).with_its_batch().clusters()
    assert script_arguments(first, first.plan(), "out") == ["--batch_size", "16", "--gradient_accumulation_steps", "1"]
    assert script_arguments(first, moved.plan(), "out") == ["--batch_size", "16", "--gradient_accumulation_steps", "8"]


@pytest.mark.parametrize("given", [{}, {"global_batch_size": 64}])
def test_a_script_gets_the_same_batch_on_a_fallback_type(script: Path, given: dict[str, int]) -> None:
    types = {"instance_type": "ml.g5.12xlarge", "fallback_instance_types": "ml.g5.xlarge"}  # four GPUs, and one

    first, moved = JobSpec(entry_script=str(script), **types, **given).clusters()

    assert not argument_faults(first)
    batch = ["--batch-size", "64"] if given else []  # what nobody types, the script chooses
    assert script_arguments(first, moved.plan(), "/out") == ["--output-dir", "/out", *batch]
    script.write_text("from transformers import HfArgumentParser\n")
    assert bound(first).takes_batch
    assert [each.plan().global_batch_size for each in first.with_its_batch().clusters()] == [64, 64]


def test_arguments_that_only_a_fallback_type_needs_are_checked_before_the_launch(script: Path) -> None:
    types = {"instance_type": "ml.g5.12xlarge", "fallback_instance_types": "ml.g5.xlarge"}

    (fault,) = argument_faults(JobSpec(entry_script=str(script), **types, per_device_train_batch_size=16))

    assert fault == (
        "fallback_instance_types: to keep the global batch size of 64 on ml.g5.xlarge, train.py would need an argument "
        "gradient_accumulation_steps, which it does not have: of the batch parameters, give only global_batch_size, or "
        "leave fallback_instance_types out"
    )


def test_a_fallback_type_whose_devices_cannot_share_the_usual_batch_is_refused(script: Path) -> None:
    script.write_text(f"{PLAIN}parser.add_argument('--gradient_accumulation_steps')")
    spec = JobSpec(entry_script=str(script), per_device_train_batch_size=4)

    made = bind(replace(spec.code_request, fallbacks={"beach.3gpus": None}), script_of(spec))

    assert made.faults == (
        "fallback_instance_types: the devices of beach.3gpus cannot share the global batch size of 4 evenly: leave "
        "beach.3gpus out",
    )


def test_a_script_whose_other_arguments_are_unknown_needs_a_known_one_for_a_smaller_fallback_type(script: Path) -> None:
    script.write_text(f"{PLAIN}deepspeed.add_config_arguments(parser)\n")
    types = {"instance_type": "ml.g5.12xlarge", "fallback_instance_types": "ml.g5.xlarge"}

    (fault,) = argument_faults(JobSpec(entry_script=str(script), **types, per_device_train_batch_size=16))

    assert "would need an argument gradient_accumulation_steps" in fault  # the words that it gets have no place for it


def test_a_fallback_type_with_as_many_devices_needs_no_other_arguments(script: Path) -> None:
    script.write_text(PLAIN.replace("--batch-size", "--micro") + "parser.add_argument('--gradient_accumulation_steps')")
    types = {"instance_type": "ml.g5.xlarge", "fallback_instance_types": "ml.g5.2xlarge"}

    first, moved = JobSpec(entry_script=str(script), **types, gradient_accumulation_steps=4).clusters()

    assert not argument_faults(first)
    assert script_arguments(first, moved.plan(), "/out") == script_arguments(first, first.plan(), "/out")


@pytest.mark.parametrize(
    "body",
    [
        f"{PLAIN}parser.add_argument('--loud', action='count', default=0)\n",
        f"{PLAIN}parser.add_argument('--loud', action='store_const', const=3)\n",
        f"{PLAIN}parser.add_argument('--loud', dest='modes', action='append_const', const='loud')\n",
    ],
)
def test_an_option_that_takes_no_value_is_passed_as_a_switch(script: Path, body: str) -> None:
    script.write_text(body)

    assert words(script, training_arguments={"loud": True}).removeprefix("--output-dir /out ") == "--loud"
    assert "--loud" not in words(script, training_arguments={"loud": False})


def test_a_script_with_switches_of_number_formats_gets_the_one_that_is_asked_for(script: Path) -> None:
    script.write_text(PLAIN + "".join(f"parser.add_argument('--{name}', action='store_true')\n" for name in FORMATS))

    assert [words(script, precision=name) for name in (*FORMATS, "fp32")] == [
        "--output-dir /out --bf16",
        "--output-dir /out --fp16",
        "--output-dir /out",
    ]


@pytest.mark.parametrize(
    ("declared", "off"), [("action=argparse.BooleanOptionalAction", "--no-bf16"), ("type=bool", "--bf16 ")]
)
def test_a_number_format_that_a_script_uses_by_default_is_turned_off_for_another_one(
    script: Path, declared: str, off: str
) -> None:
    switch = "parser.add_argument('--fp16', action='store_true')\n"
    script.write_text(PLAIN + f"parser.add_argument('--bf16', {declared}, default=True)\n{switch}")

    assert words(script, precision="fp32") == f"--output-dir /out {off}"
    assert words(script, precision="fp16") == f"--output-dir /out --fp16 {off}"
    assert words(script, precision="bf16") in ("--output-dir /out --bf16", "--output-dir /out --bf16 true")
    assert words(script, precision="auto") == words(script) == "--output-dir /out"


def test_a_number_format_in_the_configuration_of_hydra_is_turned_off_for_another_one(script: Path) -> None:
    script.write_text("import hydra\n@hydra.main(config_name='conf', config_path='.')\ndef main(conf): ...\nmain()\n")
    script.with_name("conf.yaml").write_text("bf16: true\nfp16: {enabled: false}\n")

    assert words(script, precision="fp32") == "bf16=false"
    assert words(script, precision="bf16") == "bf16=true"


def test_a_script_of_hydra_gets_overrides_and_only_those_that_were_asked_for(script: Path) -> None:
    script.write_text("import hydra\n@hydra.main(config_name='conf')\ndef main(conf): ...\nmain()\n")
    arguments = {"optimizer.lr": 0.1, "+trainer.fast": True}

    assert words(script, training_arguments=arguments) == "optimizer.lr=0.1 +trainer.fast=true"
    assert words(script, seed=3) == "++seed=3"  # a repeat of a study; the configuration may have no seed
    assert words(script) == ""


def test_lists_mappings_and_null_are_overrides_that_hydra_and_omegaconf_read(script: Path) -> None:
    text = "import hydra\n@hydra.main(config_name='conf')\ndef main(conf): ...\nmain()\n"
    values = {"layers": ["a,b", r"it's \d", "1", "\\"], "optimizer": {"lr": 0.1, "betas": [0.9, 1]}, "ckpt": None}
    spec = JobSpec(entry_script=str(script), training_arguments=values)

    script.write_text(text)
    line = [r"layers=['a,b','it\'s \d','1','\\']", "optimizer={lr: 0.1,betas: [0.9,1]}", "ckpt=null"]
    assert script_arguments(spec, spec.plan(), "/out") == line
    script.write_text("from omegaconf import OmegaConf\nconf = OmegaConf.from_cli()\n")
    line = script_arguments(spec, spec.plan(), "/out")
    assert OmegaConf.to_container(OmegaConf.from_dotlist(line)) == values


def test_a_script_whose_parser_is_not_seen_gets_only_what_is_given(script: Path) -> None:
    script.write_text("from options_of_somebody import parse_args\nargs = parse_args()\n")

    assert words(script) == ""
    assert words(script, learning_rate=0.1, seed=3, global_batch_size=32) == (
        "--per_device_train_batch_size 16 --gradient_accumulation_steps 2 --learning_rate 0.1"
    )


def test_a_script_of_hugging_face_gets_its_usual_arguments(script: Path) -> None:
    script.write_text("from transformers import HfArgumentParser\n")
    usual = (
        "--learning_rate 5e-05 --per_device_train_batch_size 16 --gradient_accumulation_steps 1 --num_train_epochs 1 "
        "--seed 42 --logging_steps 10 --disable_tqdm true --report_to none"
    )
    given = {"model": "gpt2", "dataset": "imdb", "test_file": "t.csv", "precision": "bf16", "max_seq_length": 64}

    assert words(script) == f"--output_dir /out {usual}"
    line = words(script, **given, training_arguments={"logging_steps": 5, "mapping": {"a": 1}})
    assert line == (
        f"--output_dir /out {usual.replace('logging_steps 10', 'logging_steps 5')} --model_name_or_path gpt2 "
        '--test_file t.csv --max_seq_length 64 --bf16 true --dataset_name imdb --mapping {"a": 1}'
    )
    assert "--dataset_config_name sst2 --dataset_name nyu-mll/glue" in words(script, dataset="nyu-mll/glue:sst2")
    assert "--bf16 false" in words(script, precision="fp32")  # some scripts have another default
    assert "--config_name gpt2 --tokenizer_name gpt2" in words(script, model="gpt2", init="random")


REQUIRED = PLAIN.replace("type=float, default=0.3", "required=True")
ALIASES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", "--bs", type=int, required=True)
parser.add_argument("--epochs", "--num_epochs", type=int, required=True)
args = parser.parse_args()
"""
CLICK = """
from click import command, option
@command()
@option("--batch-size", "--bs", required=True)
def main(batch_size): ...
"""
HUGGING_FACE = """
from transformers import HfArgumentParser
@dataclass
class Model:
    model_name_or_path: str = field(metadata={})
    size: int = field(default=1)
@dataclass
class Collator:
    tokenizer: str
HfArgumentParser((Model, TrainingArguments))
"""
DATA = PLAIN + "parser.add_argument('--data')\n"
WITHOUT_PARSER = "train.py has no argument learning_rate: it has none"
NO_ARGUMENT = "train.py has no argument max_seq_length, epoch: did you mean epochs?; it has batch-size, epochs, lr"

NO_ARGUMENTS = "train.py has no argument a, b: it has none; leave them out, or add them with argparse"


@pytest.mark.parametrize(
    ("text", "values", "fault"),
    [
        ("import torch\n", {"learning_rate": 0.1}, f"{WITHOUT_PARSER}; leave it out, or add it with argparse"),
        ("import torch\n", {"training_arguments": {"a": 1, "b": 2}}, NO_ARGUMENTS),
        (PLAIN, {"max_seq_length": 64, "training_arguments": {"epoch": 3, "lr": 1}}, NO_ARGUMENT),
        (PLAIN, {"training_arguments": {"lr": 1}}, ""),
        (REQUIRED, {}, "train.py does not run without --lr: add --learning_rate VALUE"),
        (REQUIRED, {"learning_rate": 0.1}, ""),
        (ALIASES, {"per_device_train_batch_size": 8, "num_train_epochs": 1}, ""),
        (ALIASES, {"training_arguments": {"bs": 8, "num_epochs": 1}}, ""),
        (ALIASES, {"training_arguments": {"bs": 8}}, "train.py does not run without --epochs: add --num_train_epochs"),
        (CLICK, {}, ""),
        (CLICK, {"training_arguments": {"bs": 8}}, "train.py reads its options with Click: paretune reads them by run"),
        (HUGGING_FACE, {}, "train.py does not run without --model_name_or_path: add --model VALUE"),
        (HUGGING_FACE, {"model": "gpt2"}, ""),
        (DATA, {"dataset": "nyu-mll/glue"}, ""),
        (DATA, {"dataset": "nyu-mll/glue:sst2"}, "train.py has no argument dataset_config_name: it has batch-size"),
    ],
)
def test_what_a_script_does_not_take_or_would_not_get_is_refused(
    script: Path, text: str, values: dict[str, Any], fault: str
) -> None:
    script.write_text(text)

    faults = argument_faults(JobSpec(entry_script=str(script), **values))

    assert [text[: len(fault)] for text in faults] == ([fault] if fault else [])


def test_arguments_that_are_passed_by_their_places_need_a_project_whose_lines_are_written(script: Path) -> None:
    script.write_text(PLAIN + "parser.add_argument('--margin', required=True)\nparser.add_argument('rows')\n")
    (fault,) = argument_faults(JobSpec(entry_script=str(script), learning_rate=0.1))
    text, *lines = fault.splitlines()
    start = "train.py takes positional arguments, but paretune passes names: type their values after the script, as in "
    assert text.startswith(f"{start}`train.py ROWS`, or, to give them names, write these two lines")
    entry = yaml.safe_load("\n".join(map(str.strip, lines)))["entry_points"]["main"]
    assert entry == {"parameters": {"lr": "string", "rows": "string"}, "command": "python train.py --lr={lr} {rows}"}


@pytest.mark.parametrize("count", ["argparse.REMAINDER", "'*'", "'+'"])
def test_a_script_that_takes_pairs_after_its_options_is_refused_with_a_project_that_passes_them(
    script: Path, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = "print('used', given.lr, given.opts)\n"
    script.write_text(f"{PLAIN}parser.add_argument('opts', nargs={count})\ngiven = parser.parse_args()\n{used}")
    monkeypatch.chdir(script.parent)
    given = {"lr": 0.5, "SOLVER.BASE_LR": 0.2}

    (fault,) = argument_faults(JobSpec(entry_script="train.py", training_arguments=given))

    text, *lines = fault.splitlines()
    assert text.startswith("train.py has no argument SOLVER.BASE_LR: ")
    assert text.endswith(
        "; if its words opts are pairs KEY VALUE, type them after the script, as in `train.py SOLVER.BASE_LR VALUE`, "
        "or, to search them, write these two lines into ./MLproject, and replace entry_script with `project: .`, and "
        "SOLVER.BASE_LR with SOLVER_BASE_LR"
    )
    Path("MLproject").write_text("\n".join(map(str.strip, lines)))
    spec = JobSpec(project=".", training_arguments={"lr": 0.5, "SOLVER_BASE_LR": 0.2})
    code = code_inputs(spec.code_request, script.parent).code
    assert code is not None
    passed = shlex.split(code.command.words[0])[1:]
    ran = subprocess.run([sys.executable, *passed], capture_output=True, text=True, check=False)
    assert ran.stdout == "used 0.5 ['SOLVER.BASE_LR', '0.2']\n"


@pytest.mark.parametrize(
    ("text", "given", "line"),
    [
        (PLAIN + "parser.add_argument('rows')\n", {"lr": 0.1}, "a b --output-dir /out --lr 0.1"),
        (PLAIN + "parser.add_argument('opts', nargs='...')\n", {"lr": 0.1}, "--output-dir /out --lr 0.1 a b"),
        ("import sys\nlr = float(sys.argv[1])\n", {}, "a b"),
    ],
)
def test_words_typed_after_the_script_stand_where_it_reads_them(
    script: Path, text: str, given: dict[str, Any], line: str
) -> None:
    script.write_text(text)

    assert words(script, script_words="a b", training_arguments=given) == line
    assert argument_faults(JobSpec(entry_script=str(script), script_words="a b", training_arguments=given)) == []


def test_a_script_that_reads_words_from_sys_argv_is_said_to_with_their_number(script: Path) -> None:
    script.write_text("import sys\nrows = sys.argv[1]\nmodel = sys.argv[2]\nprint('loss: 1')\n")
    unclear = "whether it runs without 2 words from sys.argv (rows, model), which are typed after the script"

    assert script_in_words(JobSpec(entry_script=str(script)))["unclear"] == unclear
    assert script_in_words(JobSpec(entry_script=str(script), script_words="a b"))["unclear"] == ""


SUBCOMMANDS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--verbose", action="store_true")
commands = parser.add_subparsers(dest="command")
commands.add_parser("split").add_argument("--share", type=float, default=0.1)
train = commands.add_parser("train")
train.add_argument("--lr", type=float, default=0.1)
train.add_argument("--root", required=True)
train.add_argument("--debug", action="store_true")
args = parser.parse_args()
print(args.command, args.verbose, args.lr, args.root, args.debug)
"""


def test_a_script_with_subcommands_is_asked_which_and_runs_by_the_advice(script: Path) -> None:
    script.write_text(SUBCOMMANDS)
    given = {"lr": 0.5, "verbose": True, "debug": True}
    spec = JobSpec(entry_script=str(script), training_arguments=given)

    (fault,) = argument_faults(spec)
    assert fault == (
        "train.py needs the word split or train before its options: type the one that trains after the script, as in "
        "`train.py train`, or add --script_words train"
    )
    spec = spec.replace(script_words="train")
    (fault,) = argument_faults(spec)
    assert fault == "train.py does not run without --root: add --training_arguments.root VALUE"
    spec = spec.replace(training_arguments={**given, "root": "rows"})
    assert argument_faults(spec) == []
    passed = [sys.executable, str(script), *script_arguments(spec, spec.plan(), "/out")]
    assert subprocess.run(passed, capture_output=True, text=True, check=True).stdout == "train True 0.5 rows True\n"


@pytest.mark.parametrize(
    ("own", "given", "fault"),
    [
        ("trian", {}, "train.py has no subcommand trian: did you mean train?"),
        ("train", {"share": 0.2, "root": "x"}, "--share of train.py is an option of split, not of train"),
    ],
)
def test_a_wrong_subcommand_or_an_option_of_another_one_is_refused(
    script: Path, own: str, given: dict[str, Any], fault: str
) -> None:
    script.write_text(SUBCOMMANDS)

    assert argument_faults(JobSpec(entry_script=str(script), script_words=own, training_arguments=given)) == [fault]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (
            "import typer\napp = typer.Typer()\n@app.command()\ndef split(): ...\n"
            "@app.command('fit')\ndef f(): ...\napp()\n",
            "split or fit",
        ),
        ("import click\n@click.group()\ndef cli(): ...\n@cli.command()\ndef run_all(): ...\ncli()\n", "run-all"),
        ("from jsonargparse import CLI\nLightningCLI(Model)\n", "fit"),
    ],
)
def test_subcommands_of_other_libraries_are_read_from_the_text(script: Path, text: str, known: str) -> None:
    script.write_text(text)

    (fault,) = argument_faults(JobSpec(entry_script=str(script)))

    best = known.rpartition(" ")[2]
    assert fault.startswith(f"train.py needs the word {known} before its options: type the one that trains")
    assert argument_faults(JobSpec(entry_script=str(script), script_words=best)) == []


def test_the_only_command_of_a_typer_app_is_no_subcommand(script: Path) -> None:
    script.write_text("import typer\napp = typer.Typer()\n@app.command()\ndef main(lr: float = 0.1): ...\napp()\n")

    assert argument_faults(JobSpec(entry_script=str(script))) == []


def test_a_parameter_of_ours_that_the_script_has_too_is_said_to_be_ours(script: Path) -> None:
    script.write_text(PLAIN + "parser.add_argument('--region')\nprint('loss: 1')\n")

    unclear = script_in_words(JobSpec(entry_script=str(script), region="eu-west-1"))["unclear"]

    assert unclear == (
        "whether region is meant for it: it was taken for paretune's parameter, and --training_arguments.region VALUE "
        "passes its own"
    )


def test_a_parameter_without_an_argument_may_be_a_pair_whose_key_only_the_user_knows(script: Path) -> None:
    options = "parser.add_argument('--config-file')\nparser.add_argument('opts', nargs='*')\nparser.parse_args()\n"
    script.write_text(f"import argparse\nparser = argparse.ArgumentParser()\n{options}")

    (fault,) = argument_faults(JobSpec(entry_script=str(script), learning_rate=0.1))

    entry = yaml.safe_load("\n".join(map(str.strip, fault.splitlines()[1:])))["entry_points"]["main"]
    assert entry == {"parameters": {"learning_rate": "string"}, "command": "python train.py KEY {learning_rate}"}


def test_a_script_that_reads_its_arguments_by_place_is_not_given_another_one_there(script: Path) -> None:
    script.write_text('import sys\nmodel_name = sys.argv[1] if len(sys.argv) > 1 else "distilroberta-base"\n')

    (fault,) = argument_faults(JobSpec(entry_script=str(script), learning_rate=3e-5))

    assert fault == (
        "train.py has no argument learning_rate: it reads only model_name, from sys.argv by place; leave it out, or "
        "read it with argparse"
    )


def test_the_advice_names_folders_from_where_the_command_is_typed(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text("import sys\nlr = float(sys.argv[1])\n")
    spec = JobSpec(entry_script=str(script), training_arguments={"lr": 0.2})
    monkeypatch.chdir(script.parent)
    assert "into ./MLproject, and replace entry_script with `project: .`" in argument_faults(spec)[0]
    monkeypatch.chdir(script.parent.parent)
    (fault,) = argument_faults(spec)  # the script finds the files of the current folder in a project, too
    assert "into ./MLproject, and replace entry_script with `project: .`" in fault
    assert f'command: "python {script.parent.name}/train.py {{lr}}"' in fault
    (script.parent / "other").mkdir()
    monkeypatch.chdir(script.parent / "other")
    assert "into ../MLproject, and replace entry_script with `project: ..`" in argument_faults(spec)[0]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (
            "import sys\nfor word in sys.argv[1:]:\n    name, value = word.lstrip('-').split('=')\n",
            {},
        ),
        ("lr = 0.1\nexec(open('configurator.py').read())\n", {"configurator.py": "k, v = sys.argv[1].split('=')\n"}),
    ],
)
def test_a_script_with_a_parser_of_its_own_gets_names_and_values_in_one_word(
    script: Path, text: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    for name, content in files.items():
        (script.parent / name).write_text(content)
    script.write_text(text)

    assert words(script, training_arguments={"trainer.lr": 0.001, "steps": 20}) == "--trainer.lr=0.001 --steps=20"
    assert argument_faults(JobSpec(entry_script=str(script), training_arguments={"lr": 1})) == []
    monkeypatch.chdir(script.parent.parent)
    faults = argument_faults(JobSpec(entry_script=str(script), training_arguments={"lr": 1}))
    assert [fault.splitlines()[1:] for fault in faults] == (
        [[f"    project: {script.parent.name}", "    entry_point: train.py"]] if files else []
    )


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [("epochs", "two", "a whole number"), ("epochs", 1.5, "a whole number"), ("lr", "x", "a number")],
)
def test_a_value_that_the_parser_of_the_script_would_refuse_is_refused_before_the_job(
    script: Path, name: str, value: object, rule: str
) -> None:
    (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments={name: value}))

    assert fault == f"--{name} of train.py must be {rule}, got {value}"
    assert argument_faults(JobSpec(entry_script=str(script), training_arguments={"epochs": 2.0, "lr": 1})) == []


CHOICES = """
parser.add_argument("--optimizer", choices=["sgd", "adam"])
parser.add_argument("--width", type=int, choices=[8, 16], nargs="+")
parser.add_argument("--mode", type=str.lower, choices=["a", "b"])
"""


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"optimizer": "adamw"}, "--optimizer of train.py must be one of sgd, adam, got adamw: did you mean adam?"),
        ({"width": [8, 12]}, "--width of train.py must be one of 8, 16, got 12"),
        ({"optimizer": "adam", "width": [16, 8.0], "mode": "A"}, ""),  # `type` makes a choice of A
    ],
)
def test_a_value_that_is_none_of_the_choices_is_refused_before_the_job(
    script: Path, given: dict[str, Any], fault: str
) -> None:
    script.write_text(PLAIN + CHOICES)

    assert argument_faults(JobSpec(entry_script=str(script), training_arguments=given)) == [fault] * bool(fault)


def test_nested_keys_of_hydra_are_found_as_rate_and_batch(script: Path) -> None:
    script.write_text("import hydra\n@hydra.main(config_path='.', config_name='conf')\ndef main(conf): ...\nmain()\n")
    script.with_name("conf.yaml").write_text("model: {optimizer: {lr: 0.01}}\ndata: {batch_size: 8}\n")

    line = words(script, learning_rate=0.1, per_device_train_batch_size=32)

    assert line == "data.batch_size=32 model.optimizer.lr=0.1"


def test_a_script_may_have_any_rate_and_our_own_training_not() -> None:
    assert JobSpec(entry_script="train.py", learning_rate=160).learning_rate == 160
    with pytest.raises(BadInput, match="learning_rate must be at most 10, got 160"):
        JobSpec(learning_rate=160, fine_tuning="lora")


def test_every_value_that_a_script_gets_is_recorded(script: Path) -> None:
    script.write_text("from transformers import HfArgumentParser\n")
    spec = JobSpec(entry_script=str(script), training_arguments={"logging_steps": 5})
    assert dict(bound(spec).recorded) == {
        "learning_rate": "5e-05",
        "per_device_train_batch_size": "16",
        "gradient_accumulation_steps": "1",
        "num_train_epochs": "1.0",
        "seed": "42",
        "training_arguments.logging_steps": "5",
        "training_arguments.disable_tqdm": "true",
        "training_arguments.report_to": "none",
    }
    script.write_text("import hydra\n@hydra.main(config_name='conf')\ndef main(conf): ...\nmain()\n")
    spec = JobSpec(entry_script=str(script), training_arguments={"+trainer.limit_train_batches": 15})
    assert dict(bound(spec).recorded) == {"training_arguments.trainer.limit_train_batches": "15"}


def test_a_positional_argument_is_required_even_if_it_has_a_default(script: Path) -> None:
    script.write_text(f"{PLAIN}parser.add_argument('rows', default='data')\nparser.parse_args()\n")

    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    (fault,) = argument_faults(JobSpec(entry_script=str(script)))

    assert "the following arguments are required: rows" in ran.stderr
    assert fault.startswith("train.py takes positional arguments")


@pytest.mark.parametrize("count", ["argparse.REMAINDER", "'...'", "argparse.OPTIONAL", "argparse.ZERO_OR_MORE"])
def test_a_positional_argument_that_may_be_left_out_is_not_required(script: Path, count: str) -> None:
    script.write_text(f"{PLAIN}parser.add_argument('others', nargs={count})\n")

    assert not argument_faults(JobSpec(entry_script=str(script), learning_rate=0.1))


def test_an_argument_of_the_script_given_as_a_parameter_is_refused_with_its_right_place(script: Path) -> None:
    script.write_text(PLAIN + "parser.add_argument('--data', required=True)\n")
    with pytest.raises(BadInput) as refused:
        JobSpec.read({"entry_script": str(script), "quiet": "x", "data": "x", "quiter": "x"})

    of_script, of_data, unknown = refused.value.faults
    assert of_script.endswith("an argument of train.py is given as --training_arguments.quiet VALUE")
    assert of_data.startswith("unknown parameter data: did you mean dataset?")
    assert argument_faults(JobSpec(entry_script=str(script)))[0].endswith("--data: add --dataset VALUE")
    assert unknown.startswith("unknown parameter quiter")


@pytest.mark.parametrize(
    ("text", "sentence", "lines"),
    [
        (
            "import sys\nlr = float(sys.argv[1])\n",
            "takes positional arguments",
            ["name: ", "entry_points: {main: "],
        ),
        (
            "lr = 0.1\nexec(open('c.py').read())\n",
            "may read sys.argv in its own way",
            ["name: ", "entry_points: {main"],
        ),
        ("lr = 0.1\nprint(lr)\n", "add these two lines below line 1", ["import argparse; ", "globals().update("]),
        ("lr = 1\nget_ipython().system('ls')\n", "calls get_ipython()", ["from IPython", "get_ipython = lambda"]),
    ],
)
def test_what_cannot_start_is_refused_with_the_two_lines_that_make_it_work(
    script: Path, text: str, sentence: str, lines: list[str]
) -> None:
    script.write_text(text)

    (fault,) = argument_faults(JobSpec(entry_script=str(script), training_arguments={"lr": 0.2}))

    assert sentence in fault.splitlines()[0]
    assert all(map(str.startswith, map(str.strip, fault.splitlines()[1:]), lines)), fault


def test_a_notebook_with_magics_runs_with_the_two_lines_that_its_refusal_names(script: Path) -> None:
    cells = (
        "get_ipython().run_line_magic('load_ext', 'autoreload')\n"
        "get_ipython().run_line_magic('matplotlib', 'inline')\n"
        "get_ipython().run_cell_magic('time', '', 'accuracy = 0.5')\n"
        "get_ipython().system('true')\n"
        "print('val_acc:', accuracy)\n"
    )  # as nbconvert writes %load_ext, %matplotlib, %%time and !true
    script.write_text(cells)
    spec = JobSpec(entry_script=str(script))

    (fault,) = argument_faults(spec)
    script.write_text("\n".join([*map(str.strip, fault.splitlines()[1:]), cells]))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert argument_faults(spec) == []
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "val_acc: 0.5"), ran.stderr


TRL = "from trl import (\n    ModelConfig, RewardConfig, TrlParser\n)\nTrlParser((RewardConfig, ModelConfig))\n"


@pytest.mark.parametrize(
    ("has_gpu", "default", "given", "is_refused"),
    [
        (False, "self.bf16 = not (self.fp16) if self.bf16 is None else self.bf16", {}, True),
        (False, "self.bf16 = not (self.fp16) if self.bf16 is None else self.bf16", {"precision": "fp32"}, False),
        (
            False,
            "self.bf16 = not (self.fp16) if self.bf16 is None else self.bf16",
            {"instance_type": "ml.g5.xlarge"},
            False,
        ),
        (False, "an older version", {}, False),
        (True, "self.bf16 = not (self.fp16) if self.bf16 is None else self.bf16", {}, False),
    ],
)
def test_bf16_by_default_is_refused_on_a_machine_without_gpu_and_runs_by_the_advice(
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_gpu: bool,
    default: str,
    given: dict[str, Any],
    is_refused: bool,
) -> None:
    installed = script.parent / "installed" / "trl"
    (installed / "trainer").mkdir(parents=True)
    (installed / "__init__.py").touch()
    (installed / "trainer" / "base_config.py").write_text(f"{default}\n")
    monkeypatch.syspath_prepend(installed.parent)
    monkeypatch.setattr(binding, "may_have_gpu", lambda: has_gpu)
    script.write_text(TRL)

    faults = argument_faults(JobSpec(entry_script=str(script), **given))

    refusal = (
        "train.py trains in bf16, the default of TRL's RewardConfig, which needs a GPU, and this machine has none: "
    )
    assert faults == [f"{refusal}add --precision fp32"] * is_refused
    assert "--bf16 false" in words(script, precision="fp32")


def test_a_dry_run_says_what_is_passed_what_is_reported_and_what_is_unclear(script: Path) -> None:
    script.write_text(PLAIN + "print(f'epoch {epoch}: loss {loss}, f1 {f1}')\n")
    spec = JobSpec(entry_script=str(script), training_arguments={"lr": 0.2}, metric=("f1", "recall"))

    assert script_in_words(spec) == {
        "passes": "--output-dir OUTPUT_DIR --lr 0.2",
        "its own defaults": "batch-size, epochs, quiet",
        "reports": "loss, f1",
        "logs with": "",
        "keeps": "model files that it saves, up to 200 MiB together, in models/ of its run; "
        "--keep_models false keeps none",
        "unclear": "whether it reports recall, which its text does not show",
    }


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (
            {"model": "bundled:all-MiniLM-L6-v2"},
            "a hub id, such as sentence-transformers/all-MiniLM-L6-v2, or a folder",
        ),
        ({"dataset": "bundled:imdb"}, "a hub id, a file or a folder"),
    ],
)
def test_a_script_is_not_given_names_that_only_our_own_training_knows(
    script: Path, given: dict[str, str], instead: str
) -> None:
    script.write_text(PLAIN)

    (fault,) = argument_faults(JobSpec(entry_script=str(script), **given))

    assert fault.endswith(f"works only with paretune's own training: give {script.name} {instead}")


GIVEN = """
model=bert-base-uncased init=pretrained dataset=rotten_tomatoes text_column=text label_column=label
task=classification max_train_samples=500 max_eval_samples=50 max_seq_length=128 learning_rate=5e-05
seed=42 num_train_epochs=1 fine_tuning=full test_file=t.csv validation_file=v.csv missing_rows=refuse
"""


def test_a_script_receives_every_given_value_although_it_is_a_default_of_ours(script: Path) -> None:
    values = dict(word.split("=") for word in GIVEN.split())
    assert set(values) >= {*OF_SCRIPTS} - {"lora", "precision"}
    lines = ["import argparse", "p = argparse.ArgumentParser()", *(f"p.add_argument('--{name}')" for name in values)]
    script.write_text("\n".join(lines))

    spec = JobSpec.read({"entry_script": str(script), **values})
    line = script_arguments(spec, spec.plan(), "/out")

    assert dict(zip(line[::2], line[1::2], strict=True)) == {f"--{name}": text for name, text in values.items()}
    assert params_of(spec).items() >= spec.given_text().items()
    nothing = JobSpec(entry_script=str(script))
    assert script_arguments(nothing, nothing.plan(), "/out") == []
    assert set(params_of(nothing)) == {"instance_type", "instance_count", "entry_script"}


def test_a_range_of_whole_numbers_is_one_of_floats_if_the_script_reads_floats(script: Path) -> None:
    study = script.parent / "study.yaml"
    study.write_text(
        "name: plain\nentry_script: train.py\nn_trials: 2\nobjectives: {cost_usd: minimize, val_loss: minimize}\n"
        "search: {training_arguments.lr: {low: 1, high: 40, log: true}, epochs: {low: 1, high: 4}}\n"
    )

    search = with_own_code(StudyFile.read(str(study), {})).search

    assert {name: is_whole(name, entry) for name, entry in search.items() if isinstance(entry, Range)} == {
        "training_arguments.lr": False,
        "training_arguments.epochs": True,
    }


def test_a_study_searches_arguments_by_the_scripts_own_names(script: Path) -> None:
    study = script.parent / "study.yaml"
    text = (
        "name: plain\nentry_script: train.py\n"
        "search: {lr: {low: 0.01, high: 0.1}, batch_size: {choices: [8, 16]}, num_train_epochs: {choices: [1, 2]}}\n"
        "objectives: {cost_usd: minimize, val_loss: minimize}\nn_trials: 2\n"
    )
    study.write_text(text)

    file = with_own_code(StudyFile.read(str(study), {}))

    point = {"training_arguments.lr": 0.05, "training_arguments.batch-size": 8, "num_train_epochs": 1.0}
    spec = file.spec_at(point)
    assert " ".join(script_arguments(spec, spec.plan(), "/out")) == (
        "--output-dir /out --epochs 1 --lr 0.05 --batch-size 8"
    )
    study.write_text(text.replace("{lr:", "{rate:"))
    with pytest.raises(BadInput, match=r"train\.py has no argument rate: .*it has batch-size, epochs, lr"):
        run_study(str(study))


def test_a_metric_that_the_user_names_counts_as_one_of_the_script_s_own_names(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('quok' + 'ka=0.9', 'widgets=3')\n")

    command = script_inputs(JobSpec(entry_script=str(tmp_path / "train.py"), metric=("quokka",))).command

    assert command is not None
    assert "quokka" in command.named
