"""The files next to a model's weights: MLflow loads the folder by them, and a folder that cannot be loaded says why."""

import json
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import transformers
from mlflow.models import Model

from paretune.training.mlflow_model import describe


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return what a script that uses the Trainer leaves, with meaningless weights."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "optimizer.pt", "training_args.bin"):
        (tmp_path / name).write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "class_name", "answer"),
    [
        ("tiny_model", "AutoModelForSequenceClassification", ["LABEL_"]),
        ("tiny_model", "AutoModelForTokenClassification", ["LABEL_"]),
        ("tiny_causal_model", "AutoModelForCausalLM", ["a film"]),
    ],
)
def test_mlflow_and_transformers_load_the_same_folder(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, class_name: str, answer: list[str]
) -> None:
    source = request.getfixturevalue(name)
    model = getattr(transformers, class_name).from_pretrained(source)
    model.generation_config = transformers.GenerationConfig(max_new_tokens=3, pad_token_id=0)
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path)

    assert describe(tmp_path) == ""

    text = "a film" if name == "tiny_causal_model" else "a film " * 60  # more tokens than the model takes
    predicted = mlflow.pyfunc.load_model(str(tmp_path)).predict([text])
    labels = predicted["label"].tolist() if hasattr(predicted, "columns") else predicted
    assert [label[: len(begin)] for label, begin in zip(labels, answer, strict=True)] == answer
    pipeline = mlflow.transformers.load_model(str(tmp_path))
    assert type(pipeline.model) is type(transformers.pipeline(pipeline.task, model=str(tmp_path)).model)


def test_a_model_predicts_for_frames_with_the_column_of_its_training(tiny_model: Path, tmp_path: Path) -> None:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model)
    model.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    frame = pd.DataFrame({"id": [1, 2], "narrative": ["a film", "a film " * 60]})

    assert describe(tmp_path, "narrative") == ""

    loaded = mlflow.pyfunc.load_model(str(tmp_path))
    assert loaded.metadata.signature.inputs.input_names() == ["narrative"]
    assert [label[:6] for label in loaded.predict(frame)["label"]] == ["LABEL_"] * 2
    assert len(loaded.predict([{"narrative": "a film"}])) == 1
    with pytest.raises(mlflow.MlflowException, match=r"missing inputs \['narrative'\]"):
        loaded.predict(frame.rename(columns={"narrative": "text"}))


def test_the_description_names_columns_python_and_packages(checkpoint: Path) -> None:
    assert describe(checkpoint) == ""

    described = Model.load(str(checkpoint))
    assert described.signature.outputs.input_names() == ["label", "score"]
    environment = described.flavors["python_function"]["env"]["virtualenv"]
    assert "-r requirements.txt" in (checkpoint / environment).read_text()
    requirements = (checkpoint / "requirements.txt").read_text().splitlines()
    assert f"transformers=={transformers.__version__}" in requirements
    assert not [line for line in requirements if "+" in line]
    tokenizer = {path.name for path in (checkpoint / "components" / "tokenizer").iterdir()}
    assert tokenizer == {"config.json", "tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize(("text", "fault"), [("python_function", ""), ("", "its MLmodel has no flavor")])
def test_the_description_that_a_script_has_written_stays(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "MLmodel").write_text(text)

    assert describe(tmp_path)[: len(fault) or None] == fault
    assert [path.read_text() for path in tmp_path.iterdir()] == [text]


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights"), ("tokenizer", "no tokenizer")],
)
def test_a_folder_that_is_no_checkpoint_says_what_it_lacks(checkpoint: Path, lacking: str, reason: str) -> None:
    for path in checkpoint.glob(f"{lacking}*"):
        path.unlink()

    assert describe(checkpoint).startswith(reason)
    assert not (checkpoint / "MLmodel").exists()


def test_adapters_alone_and_models_that_read_no_text_say_so(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text(json.dumps({"architectures": ["ViTModel"]}))
    assert "ViTModel" in describe(checkpoint)

    (checkpoint / "model.safetensors").rename(checkpoint / "adapter_model.safetensors")
    (checkpoint / "adapter_config.json").write_text("{}")
    assert "only adapters" in describe(checkpoint)


def test_a_full_disk_leaves_the_model_without_a_description(checkpoint: Path) -> None:
    (checkpoint / "components").touch()  # where a folder should be

    assert "MLmodel could not be written" in describe(checkpoint)
    assert not (checkpoint / "MLmodel").exists()
