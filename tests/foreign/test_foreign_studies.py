"""Training scripts that know nothing about paretune; each is studied by its own metric, in at most ten lines of YAML.

Each reports the values that it really used as its own numbers (`lr_used`), in addition to its metric: what paretune
records must be the same. `.ci/full foreign` installs the libraries of all of them and runs them all.
"""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import mlflow
import pytest
import yaml
from mlflow import MlflowClient

import paretune
from paretune.core.errors import BadInput
from paretune.studies.trial_status import TrialStatus

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STUDIES = sorted(path.parent.name for path in HERE.glob("*/study.yaml"))
CHEAPEST = "print_loop"  # a script that imports nothing but the standard library
NEEDS = {
    "click_svm": "click",
    "hydra_app": "hydra",
    "keras_dense": "keras",
    "lightning_cli": "jsonargparse",
    "trl_sft": "trl",
    "typer_ridge": "typer",
    "wandb_offline": "wandb",
    "xgboost_trees": "xgboost",
}
"""Maps training scripts to the module that they need and that the extra `foreign` installs."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all training scripts and of their records."""
    folder = tmp_path_factory.mktemp("home")
    for name in STUDIES:
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def tiny(home: Path) -> None:
    """Write models with tens of thousands of weights, and two dozen rows in every format."""
    from transformers import (
        AutoTokenizer,
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
    )

    folder, gpt2 = home / "tiny", ROOT / "studies" / "tiny_gpt2"
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    tokenizer.add_special_tokens({"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"})
    size = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    bart = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    bart |= {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    bert = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    models = {
        "bert": BertModel(BertConfig(**bert, **size)),
        "bart": BartForConditionalGeneration(BartConfig(**bart, **size)),
        "gpt2": GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=64, **size)),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    words = [f"{'good' if number % 2 else 'bad'} film number {number}" for number in range(24)]
    rows = "".join(f"{text},{number % 2}\n" for number, text in enumerate(words))
    tags = "".join(json.dumps({"tokens": text.split(), "tags": ["A", "O", "O", "N"]}) + "\n" for text in words)
    texts = "".join(json.dumps({"text": f"{text} and on and on"}) + "\n" for text in words)
    (folder / "sft").mkdir()
    for name in ("train", "validation", "test"):
        (folder / f"{name}.csv").write_text(f"sentence,label\n{rows}")
        (folder / f"{name}.jsonl").write_text(tags)
        (folder / "sft" / f"{name}.jsonl").write_text(texts)
    (folder / "pairs.csv").write_text("text,summary\n" + "".join(f"{text},{text[:4]}\n" for text in words))
    (folder / "text.txt").write_text("\n".join(f"{text} and on and on" for text in words * 8))


@pytest.fixture(autouse=True)
def a_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder of the projects, as a user would."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("PARETUNE_HOME", str(home / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'mlflow.db'}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def contents(project: str) -> dict[str, bytes]:
    """Return every file of a project except Python's caches."""
    files = (path for path in Path(project).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() for path in files}


def test_no_training_knows_paretune_and_no_study_has_more_than_ten_lines() -> None:
    assert len(STUDIES) >= 12
    for name in STUDIES:
        texts = contents(str(HERE / name))
        assert len(texts.pop(str(HERE / name / "study.yaml")).splitlines()) <= 10
        assert not [path for path, text in texts.items() if b"paretune" in text]


@pytest.mark.foreign
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.essential if name == CHEAPEST else ()) for name in STUDIES]
)
def test_a_foreign_training_is_searched_by_its_own_metric(name: str, request: pytest.FixtureRequest) -> None:
    if importlib.util.find_spec(NEEDS.get(name, "torch")) is None:
        pytest.skip(f"needs {NEEDS[name]}: `.ci/full foreign` runs it")
    text = Path(name, "study.yaml").read_text()
    if "tiny/" in text:
        request.getfixturevalue("tiny")
    if name == "notebook":
        add_the_two_lines_that_the_refusal_names(Path(name))
    before, study = contents(name), yaml.safe_load(text)
    (metric,) = set(study["objectives"]) - {"cost_usd"}

    result = paretune.run_study(f"{name}/study.yaml", quiet=True)

    front = result.answer.front.trials
    trials = [trial for trial in front if trial.repeats is None]
    assert [trial.status for trial in trials] == [TrialStatus.COMPLETED] * 2, [trial.reason for trial in trials]
    assert trials[0].point != trials[1].point
    for trial in front:
        assert_what_is_recorded_is_what_ran(trial, metric, study["search"])
    assert contents(name) == before


@pytest.mark.foreign
@pytest.mark.parametrize(("name", "module"), [("run_glue", "torch"), ("trl_sft", "trl")])
def test_what_a_trainer_has_used_and_written_is_what_is_recorded(
    name: str, module: str, home: Path, tiny: None
) -> None:
    pytest.importorskip(module, reason=f"needs {module}: `.ci/full foreign` runs it")
    from transformers import TrainingArguments

    given = {"learning_rate": 3e-4, "global_batch_size": 4, "num_train_epochs": 2, "seed": 7}
    job = yaml.safe_load(Path(name, "study.yaml").read_text())
    spec = paretune.JobSpec.read({"entry_script": job["entry_script"], **job["job"], **given})

    run_id = paretune.launch(spec, quiet=True).run_id

    data = MlflowClient(mlflow.get_tracking_uri()).get_run(run_id).data
    (folder,) = (home / ".paretune" / "jobs").glob(f"*{run_id}*/model")
    used: TrainingArguments = torch_load(folder / "training_args.bin")
    assert (used.learning_rate, used.per_device_train_batch_size, used.num_train_epochs, used.seed) == (3e-4, 4, 2, 7)
    assert {setting: float(data.params[setting]) for setting in given} == given
    written = json.loads((folder / "eval_results.json").read_text())
    measured = {metric: value for metric, value in written.items() if not metric.endswith("_used")}
    assert measured.keys() >= {"eval_loss", "eval_runtime"}
    assert {metric: data.metrics[metric] for metric in measured if metric != "epoch"} == pytest.approx(
        {metric: value for metric, value in measured.items() if metric != "epoch"}
    )


def torch_load(path: Path) -> object:
    """Read the arguments that a Trainer has saved."""
    import torch

    return torch.load(path, weights_only=False)


def add_the_two_lines_that_the_refusal_names(notebook: Path) -> None:
    """Add the lines that make a notebook's parameters, which are variables, settable by a command line."""
    with pytest.raises(BadInput, match="add these two lines below line") as refused:
        paretune.run_study(str(notebook / "study.yaml"), quiet=True)
    sentence, *lines = str(refused.value).splitlines()
    above = int(sentence.partition("below line ")[2].partition(",")[0])
    script = notebook / "wines.py"
    before = script.read_text().splitlines()
    script.write_text("\n".join([*before[:above], *map(str.strip, lines), *before[above:]]))


@pytest.mark.foreign
def test_a_training_of_trl_is_searched_as_the_page_says(home: Path, tiny: None) -> None:
    page = (ROOT / "docs" / "own-training.md").read_text()
    (text,) = [part for part in page.split("\n#") if "\ntrl sft " in part]
    way, study = re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    pytest.importorskip("trl", reason="needs trl: `.ci/full foreign` runs it")
    asked = yaml.safe_load(study) | {"n_trials": 2, "budget_usd": 1}
    folder = home / asked["project"]
    folder.mkdir()
    (folder / asked["entry_point"]).write_text(way)
    settings = {"model_name_or_path": str(home / "tiny" / "gpt2"), "dataset_name": str(home / "tiny" / "sft")}
    settings |= {"output_dir": "out", "eval_strategy": "epoch", "max_length": 16, "bf16": False, "use_peft": True}
    (folder / "sft.yaml").write_text(yaml.safe_dump(settings | {"lora_target_modules": "all-linear"}))

    result = paretune.run_study(asked, quiet=True)

    for trial in result.answer.front.trials:
        assert trial.status is TrialStatus.COMPLETED, trial.reason
        assert trial.values["eval_loss"] > 0


def assert_what_is_recorded_is_what_ran(trial, metric: str, search: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    data = MlflowClient(mlflow.get_tracking_uri()).get_run(trial.run_id).data
    assert trial.values == pytest.approx({"cost_usd": data.metrics["cost_usd"], metric: data.metrics[metric]})
    assert data.metrics["billable_seconds"] * 0.115 / 3600 == pytest.approx(data.metrics["cost_usd"], abs=1e-6)
    own = json.loads(data.params.get("training_arguments", "{}"))
    recorded = {name: str(value) for name, value in own.items()} | {
        name.removeprefix("training_arguments.").replace("-", "_"): text for name, text in data.params.items()
    }  # an option of Typer is recorded in the spelling of the script, n-rows
    for searched in (name.removeprefix("training_arguments.") for name in search):
        used = f"{searched.rpartition('.')[2]}_used"
        text = {"true": "1", "false": "0"}.get(recorded[searched].lower(), recorded[searched])
        assert data.metrics[used] == pytest.approx(float(text), rel=1e-12), used
