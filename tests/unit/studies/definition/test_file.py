"""Study files: what they mean, and the messages about bad ones: one clear fault each, all at once."""

import copy
import math
import re
from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.specification import launchers
from paretune.specification.job import JobSpec
from paretune.specification.launchers import LauncherTraits
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices

SHIPPED = sorted((Path(__file__).parents[4] / "studies").glob("*.yaml"))
GOOD = """\
name: an example
job:
  num_train_epochs: 2
search:
  learning_rate: {low: 1e-5, high: 1e-4, log: true}
  global_batch_size: {choices: [16, 64]}
objectives:
  cost_usd: minimize
  f1: maximize
n_trials: 10
"""


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "study.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def read(folder: Path, text: str | bytes, **overrides: str) -> StudyFile:
    return StudyFile.read(write(folder, text), overrides)


def faults(folder: Path, text: str | bytes, **overrides: str) -> tuple[str, ...]:
    """Return the faults, with the file's folder removed."""
    with pytest.raises(BadInput) as caught:
        read(folder, text, **overrides)
    return tuple(fault.replace(f"{folder}/", "") for fault in caught.value.faults)


def test_values_mean_what_the_parameter_makes_of_their_text_and_not_what_yaml_does(tmp_path: Path) -> None:
    study = read(
        tmp_path,
        """\
name: '2026-11-20'
job:
  learning_rate: 1e-4            # YAML 1.1 takes it for a text
  max_eval_samples: 0100         # and this for 64
  max_train_samples: all
  text_column: no                # and this for false
  label_column: "on"
  max_seq_length: "64"
  spot: yes
  fallback_instance_types: [ml.g5.2xlarge, ml.g6.xlarge]
  instance_type: ml.g5.xlarge
  training_arguments: {weight_decay: 1e-2, lr_scheduler_type: cosine, group_by: [1, 2.5, no, true, "3"]}
search:
  precision: {choices: [fp32, bf16]}
budget_usd: 1_0
""",
    )
    spec = study.spec_at({"precision": "fp32"})

    assert (spec.learning_rate, spec.max_eval_samples, spec.max_train_samples) == (1e-4, 100, None)
    assert (spec.text_column, spec.label_column, spec.max_seq_length, spec.spot) == ("no", "on", 64, True)
    assert spec.instance_types() == ("ml.g5.xlarge", "ml.g5.2xlarge", "ml.g6.xlarge")
    assert spec.training_arguments == {
        "weight_decay": 0.01,
        "lr_scheduler_type": "cosine",
        "group_by": [1, 2.5, "no", True, "3"],
    }
    assert (study.name, study.budget_usd) == ("2026-11-20", 10.0)


@pytest.mark.parametrize(
    "lines",
    [
        'environment: {PREFIX: "", WANDB_MODE: offline}',
        'environment.PREFIX: ""',
        'training_arguments: {PREFIX: ""}\n  entry_script: train.py',
        'tags: {PREFIX: ""}',
    ],
)
def test_what_may_be_empty_is_so_if_the_file_says_so_in_quotes(lines: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    study = read(tmp_path, CLOUD.replace("instance_type: ml.g5.xlarge", f"instance_type: ml.g5.xlarge\n  {lines}"))

    assert {**study.job.environment, **study.job.training_arguments, **study.job.tags}["PREFIX"] == ""


def test_a_tag_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "reviews").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    job = read(tmp_path, swap("num_train_epochs: 2", "dataset: reviews\n  tags: {dataset: reviews}")).job

    assert (job.dataset, job.tags) == (str(tmp_path / "reviews"), {"dataset": "reviews"})


def test_a_blank_item_of_a_list_is_named_by_its_list(tmp_path: Path) -> None:
    assert "study.yaml:6: choices has no value: give one" in faults(tmp_path, GOOD.replace("[16, 64]", '[16, ""]'))


def test_a_number_as_a_key_without_a_value_is_a_fault(tmp_path: Path) -> None:
    for text in ("5:\n", "5: [null]\n"):
        assert any(fault.startswith("study.yaml:11: 5 has no value") for fault in faults(tmp_path, GOOD + text))


def swap(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


RATE = "learning_rate: {low: 1e-5, high: 1e-4, log: true}"
BATCH = "global_batch_size: {choices: [16, 64]}"
CLOUD = swap("num_train_epochs: 2", "instance_type: ml.g5.xlarge").replace("n_trials: 10\n", "budget_usd: 9\n")
IN_JSON = (
    '{"name": "a", "job": {"launcher": "simulated", "instance_type": "ml.g5.xlarge", "training_arguments": ARGUMENTS}, '
    '"search": {"learning_rate": {"low": 1e-5, "high": 1e-4, "log": true}}, "n_trials": 9}'
)
BAD: dict[str, tuple[str | bytes, list[str]]] = {
    "two documents": (GOOD + "---\n" + GOOD, [":11:", "a second document begins here", "remove ---"]),
    "a key twice": (GOOD + "n_trials: 11\n", [":11:", "n_trials is given twice", "line 10", "remove one"]),
    "a key twice in JSON": (
        IN_JSON.replace("ARGUMENTS", '{"lr": 1,\n"lr": 2}'),
        [":2:", "lr is given twice, first on line 1"],
    ),
    "NaN in JSON": (
        IN_JSON.replace("ARGUMENTS", '\n{"lr": NaN}'),
        [":2:", "NaN is not a number: write a number, or put text in quotes"],
    ),
    "infinity": (swap("num_train_epochs: 2", "num_train_epochs: .inf"), [":3:", ".inf is not a number"]),
    "an unknown key": (GOOD + "budget: 3\n", [":11:", "unknown key budget", "did you mean budget_usd"]),
    "a parameter of the job outside of it": (GOOD + "precision: bf16\n", [":11:", "precision", "under job or search"]),
    "a key of the study in the job": (
        swap("num_train", "n_trials: 3\n  num_train"),
        [":3:", "n_trials", "to the left"],
    ),
    "no name": (GOOD.partition("\n")[2], ["name is missing", "add name:"]),
    # the job
    "probes": (swap("num_train_epochs: 2", "probe_steps: 20"), [":3:", "probe_steps", "leave it out"]),
    "a fallback type among whose devices no batch can be divided": (
        CLOUD.replace(BATCH, "num_train_epochs: {choices: [1, 2]}").replace(
            "ml.g5.xlarge", "ml.g5.xlarge\n  global_batch_size: 12\n  fallback_instance_types: [ml.p4d.24xlarge]"
        ),
        [":5:", "fallback_instance_types: on ml.p4d.24xlarge global_batch_size", "got 12"],
    ),
    # the search
    "no search": ("name: a\nn_trials: 3\n", ["search is missing", "`paretune train`", "add search"]),
    "a list in the search": (swap(BATCH, "global_batch_size: [16, 64]"), [":6:", "{choices: [1, 2]}", "got [16, 64]"]),
    "the same choice twice": (swap("[16, 64]", "[16, 64, 1.6e1]"), [":6:", "16 is listed twice in choices"]),
    "no high": (swap("{low: 1e-5, high: 1e-4, log: true}", "{low: 1e-5}"), [":5:", "{low: 1, high: 2}"]),
    "a parameter in job and search": (
        swap("num_train_epochs: 2", "learning_rate: 1e-5"),
        [":5:", "in job and in search"],
    ),
    "rows that change what F1 is measured on": (
        swap(BATCH, "max_train_samples: {choices: [100, 200]}"),
        [":6:", "max_train_samples", "set max_eval_samples in job"],
    ),
    "a choice that makes no job": (
        swap("num_train_epochs: 2", "instance_count: 8").replace("[16, 64]", "[12, 64]"),
        [":6:", "global_batch_size=12 is invalid in every combination", "use 8 or 16"],
    ),
    "a search in which nothing fits": (
        swap(RATE, "instance_count: {choices: [8, 16]}").replace("[16, 64]", "[12, 20]"),
        ["no combination of values in search is a valid job"],
    ),
    "a choice that makes no job in any of many combinations": (
        swap("num_train_epochs: 2", "instance_count: 8")
        .replace("[16, 64]", "[12, 64]")
        .replace(RATE, f"num_train_epochs: {{choices: {[*range(1, 1200)]}}}"),  # half of them are drawn only with 12
        [":6:", "global_batch_size=12 is invalid in every combination of 500 that were drawn at random"],
    ),
    "images, which do not change what a job computes": (
        CLOUD.replace(BATCH, "sagemaker.training_image: {choices: [one/image, other/image]}"),
        [":6:", "sagemaker.training_image cannot be searched", "count as the same job", "set it in job"],
    ),
    # objectives and constraints
    "an unknown objective": (swap("cost_usd: min", "cost: min"), [":8:", "unknown metric cost", "cost_usd?"]),
    "a metric that is recorded but no objective": (
        swap("f1: maximize", "accuracy: maximize"),
        [":9:", "accuracy is recorded, but cannot be optimized or limited: use f1 or eval_loss"],
    ),
    "a metric like one of another task": (
        swap("f1: maximize", "f1_micr: maximize"),
        [":9:", "unknown metric f1_micr: there are cost_usd,", "f1, throughput"],
    ),
    "a direction that there is not": (swap("f1: maximize", "f1: max"), [":9:", "minimize or maximize", "'max'"]),
    "F1 of a language model": (
        swap("num_train_epochs: 2", "task: causal-lm"),
        [":9:", "f1 is not measured with task causal-lm", "perplexity"],
    ),
    "F1 in percent": (GOOD + "constraints: {f1: {min: 90}}\n", [":11:", "from 0 to 1", "got 90"]),
    # terms
    "no end": (swap("n_trials: 10\n", ""), ["n_trials is missing", "add n_trials"]),
    "a grid over a range": (GOOD + "sampler: grid\n", [":11:", "there are ranges: learning_rate", "write {choices"]),
    "a sampler of a design": (
        swap(f"search:\n  {RATE}\n  {BATCH}", "points: {full: {precision: [fp32, bf16]}}") + "sampler: tpe\n",
        ["sampler tpe is not for points", "leave it out"],
    ),
    "a split of a language model without a metric of quality": (
        swap("num_train_epochs: 2", "task: causal-lm").replace("f1: maximize", "job_seconds: minimize")
        + "sampler: split\n",
        [":11:", "sampler split needs the objective perplexity and at least one of"],
    ),
    "a term without a value": (GOOD + "budget_usd:\n", [":11:", "budget_usd has no value"]),
    "a blank term in quotes": (GOOD + "budget_usd: ' '\n", [":11:", "budget_usd has no value"]),
    "a blank name of a term": (GOOD + "' ': 2\n", [":11:", "a key must be a name"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_answered_with_one_fault_that_says_where_and_what_to_do(kind: str, tmp_path: Path) -> None:
    text, words = BAD[kind]

    (fault,) = faults(tmp_path, text)

    assert fault.startswith("study.yaml")
    assert not [word for word in words if word not in fault], fault
    assert "\n" not in fault


@pytest.mark.parametrize(("bounds", "got"), [("{at_least: 0.9}", "at_least"), ("{}", "no bound")])
def test_a_constraint_that_is_no_bound_is_refused_even_if_its_metric_is_no_objective(
    tmp_path: Path, bounds: str, got: str
) -> None:
    text = swap("  f1: maximize\n", "") + f"constraints: {{f1: {bounds}}}\nsampler: split\n"

    assert faults(tmp_path, text)[0].endswith(f"f1 must have min, max, or both, such as {{min: 0.9}}, got {got}")


def test_a_constraint_that_no_value_can_meet_is_refused(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, GOOD + "constraints: {cost_usd: {min: 3, max: 1}, f1: {min: 0.9, max: 0.9}}\n")

    assert fault.endswith("constraint cost_usd: min must be at most max, got 3 and 1")


@pytest.mark.parametrize("low", [math.nan, -math.inf])
def test_a_range_without_a_finite_end_is_refused(low: float) -> None:
    search = {"training_arguments.weight_decay": {"low": low, "high": 1.0}}
    with pytest.raises(BadInput) as caught:
        StudyFile.read({"name": "x", "search": search, "n_trials": 2})

    assert caught.value.faults == (f"training_arguments.weight_decay must be a finite number, got {low}",)


def test_all_faults_of_a_file_are_named_at_once_in_the_order_of_its_lines(tmp_path: Path) -> None:
    messages = faults(
        tmp_path,
        """\
name:
job:
  epochs: 3
  seed: x
  instance_type: ml.g5.xlarge
  instance_type: ml.g6.xlarge
search:
  learning_rate: {low: 1, high: 0.1}
  spot: {choices: [true]}
  weight_decay: {choices: [0.1]}
objectives: {f1: minimize, costs: minimize}
constraints: {f1: {min: 90}}
n_trials: 0
sampler: grip
budget: 3
""",
    )

    started = [re.match(r"study\.yaml(?::(\d+))?: ", fault) for fault in messages]
    lines = [match[1] for match in started if match]
    assert lines == ["1", "1", "3", "4", "6", "8", "9", "10", "11", "11", "12", "13", "14", "15"]


def test_a_password_is_in_no_message_and_in_nothing_that_is_shown(tmp_path: Path) -> None:
    for storage in (
        "postgresql://me:hid/den@host/d",
        "postgresql://me:hid@den@host/d",
        "postgresql://h/d?password=hidden",
    ):
        study = read(tmp_path, GOOD + f"storage: {storage}\n")

        assert study.storage == storage
        shown = study.as_text()["storage"]
        assert "host" in shown or "//h/d" in shown
        assert not re.search("hid|den", f"{shown} {study.command}")

    for text in (
        "storag: postgresql://me:hidden@h/d",
        "storage: mysql+x://me:hidden@h/d",
        "storage: [postgresql://me:hidden@h/d]",
    ):
        assert "hidden" not in str(faults(tmp_path, GOOD + text))
    assert "hidden" not in str(faults(tmp_path, GOOD, storage="my:hidden@h"))


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"budgetusd": "3"}, "unknown parameter budgetusd: did you mean budget_usd"),
        ({"search": "x"}, "search can be set only in the file"),
        ({"n_trials": "0"}, "^n_trials must be at least 1, got 0$"),
        ({"learning_rate": "1,2"}, "^learning_rate must be a number .*, got '1,2'$"),
        ({"learning_rate": "3e-5", "global_batch_size": "16"}, "search is missing"),
        ({"instance_type": "ml.g5.xlarge"}, "budget_usd is missing"),
    ],
)
def test_a_bad_value_that_was_typed_is_one_fault_without_a_line(
    typed: dict[str, str], words: str, tmp_path: Path
) -> None:
    (fault,) = faults(tmp_path, GOOD, **typed)

    assert re.search(words, fault), fault


def test_a_bad_value_that_replaces_one_inside_a_mapping_has_no_line(tmp_path: Path) -> None:
    text = swap("num_train_epochs: 2", "fine_tuning: lora\n  lora: {r: 8}")

    (fault,) = faults(tmp_path, text, **{"lora.r": "abc"})

    assert fault.startswith("lora.r must be a whole number")
    blank = faults(tmp_path, text.replace("{r: 8}", "{r: }"), **{"lora.r": "8"})
    assert any(re.match(r"study\.yaml:\d+: r has no value", fault) for fault in blank)


def test_only_jobs_that_aws_bills_need_a_budget(tmp_path: Path) -> None:
    cloud = CLOUD.replace("budget_usd: 9", "n_trials: 9")

    assert read(tmp_path, cloud, launcher="simulated").budget_usd is None
    assert read(tmp_path, cloud, instance_type="local").budget_usd is None
    for text in (cloud, swap(BATCH, "instance_type: {choices: [local, ml.g5.xlarge]}")):
        assert "budget_usd is missing" in faults(tmp_path, text)[0]


MIXED_TYPES = "[local, ml.g5.xlarge]"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (swap(BATCH, f"instance_type: {{choices: {MIXED_TYPES}}}") + "budget_usd: 9\n", 6),
        (
            swap(f"search:\n  {RATE}\n  {BATCH}", f"points: {{full: {{instance_type: {MIXED_TYPES}}}}}\nbudget_usd: 9"),
            4,
        ),
    ],
)
def test_a_study_on_several_launchers_is_refused_but_may_be_simulated(text: str, line: int, tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, text)

    rule = "all jobs of a study must have the same launcher, got SageMaker and this machine: make a study for each"
    assert fault == f"study.yaml:{line}: {rule}, and compare their runs with `paretune report`"
    assert read(tmp_path, text, launcher="simulated").name


def test_a_combination_that_makes_no_job_is_no_fault_of_the_file_but_of_its_point(tmp_path: Path) -> None:
    text = CLOUD.replace(RATE, "strategy: {choices: [ddp, smddp]}").replace(
        BATCH, "instance_type: {choices: [ml.g5.xlarge, ml.p4d.24xlarge]}"
    )
    study = read(tmp_path, text.replace("job:\n  instance_type: ml.g5.xlarge\n", ""))

    assert study.spec_at({"strategy": "smddp", "instance_type": "ml.p4d.24xlarge"}).degrees.data == 8
    with pytest.raises(BadInput, match="strategy smddp needs"):
        study.spec_at({"strategy": "smddp", "instance_type": "ml.g5.xlarge"})


def test_a_rehearsal_that_is_launched_for_real_leaves_its_table_aside(tmp_path: Path) -> None:
    text = GOOD.replace("job:\n", "job:\n  launcher: simulated\n  simulation: {runs: x.csv, seed: 3}\n")

    assert read(tmp_path, text).job.simulation.runs == "x.csv"
    real = read(tmp_path, text, launcher="sagemaker", instance_type="ml.g5.xlarge", budget_usd="3")
    assert "simulation" not in real.job.given()


def test_a_rehearsal_on_an_installed_launcher_that_simulates_keeps_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traits = LauncherTraits(name="stage", title="the stage", implementation="stage:Stage", is_simulated=True)
    monkeypatch.setitem(launchers.known(), "stage", traits)
    text = GOOD.replace("job:\n", "job:\n  launcher: stage\n  simulation: {seed: 3}\n")

    assert read(tmp_path, text).job.simulation.seed == 3


def test_what_is_typed_wins_and_is_in_the_command_that_goes_on_without_its_password(tmp_path: Path) -> None:
    study = read(tmp_path, GOOD, n_trials="3", num_train_epochs="1.5", storage="postgresql://me:secret@host/db")

    assert (study.n_trials, study.job.given()) == (3, {"num_train_epochs": 1.5})
    path, typed = tmp_path / "study.yaml", "--n_trials 3 --num_train_epochs 1.5 --storage postgresql://host/db"
    assert study.command == f"paretune study --study {path} {typed}"
    search = {"learning_rate": {"choices": [1e-5]}}
    assert StudyFile.read({"name": "x", "search": search, "n_trials": 2}, {}).command == ""
    in_a_file = read(tmp_path, GOOD, storage="sqlite:////home/ann@corp.com/s.db")  # a folder, not a user
    assert in_a_file.command == f"paretune study --study {path} --storage sqlite:////home/ann@corp.com/s.db"


def test_overrides_reach_the_job_of_a_mapping_and_leave_the_mapping_as_it_was() -> None:
    rates = {"learning_rate": {"choices": [1e-5, 3e-5]}, "global_batch_size": {"choices": [16, 64]}}
    content = {"name": "x", "job": JobSpec(max_train_samples=4000), "search": rates, "n_trials": 2}
    before = copy.deepcopy(content)

    study = StudyFile.read(content, {"max_train_samples": "100", "learning_rate": "1e-4", "global_batch_size": "8,16"})

    assert study.job.given() == {"max_train_samples": 100, "learning_rate": 1e-4}
    assert study.search == {"global_batch_size": Choices(values=(8, 16))}
    assert content == before


@pytest.mark.parametrize("job", [None, ""])
def test_a_study_without_a_job_has_the_default_objectives_and_takes_overrides(job: str | None) -> None:
    content = {"name": "x", "job": job, "search": {"learning_rate": {"choices": [1e-5, 3e-5]}}, "n_trials": 2}

    study = StudyFile.read(content, {"max_train_samples": "100"})

    assert study.objectives == {"job_seconds": "minimize", "f1": "maximize"}
    assert study.job.given() == {"max_train_samples": 100}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_study_has_no_faults(path: Path) -> None:
    assert StudyFile.read(str(path), {}).name
