"""Writes the files that MLflow needs to load a model's folder, without importing MLflow, which an image may lack.

    MLmodel                  flavors transformers and pyfunc, signature
    requirements.txt         packages that are needed to load the model
    python_env.yaml          the Python version that trained the model, for `mlflow models serve`
    components/tokenizer/    copies of the folder's small files, because MLflow looks for the tokenizer here
    code/text_model.py       loads a model that knows the name of its text column

`mlflow.transformers.save_model` (MLflow 3.17.2) writes similar files, but puts the weights into a folder `model`. Here
they are next to the other files, so that transformers and peft can load the same folder.
"""

import json
import platform
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paretune.core.errors import first_line
from paretune.core.reading import config_in
from paretune.training import text_model

CLASSIFICATION, GENERATION = "text-classification", "text-generation"
_PIPELINES = {
    "ForSequenceClassification": CLASSIFICATION,
    "ForCausalLM": GENERATION,
    "LMHeadModel": GENERATION,
    "ForTokenClassification": "token-classification",
    "ForMaskedLM": "fill-mask",
}
"""Maps suffixes of transformers class names to pipeline tasks, for classes whose pipeline reads one text."""
_TEXT = {"type": "string", "required": True}
_OUTPUTS = {
    CLASSIFICATION: [{**_TEXT, "name": "label"}, {"type": "double", "name": "score", "required": True}],
    GENERATION: [_TEXT],
}
"""Columns that the pipeline of each task returns, as mlflow.transformers declares them."""
_ENVIRONMENT = "python_env.yaml"
_PACKAGES = ("torch", "transformers", "accelerate")
_TOKENIZER, _CODE = Path("components", "tokenizer"), "code"
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
_NO_TOKENIZER = (*_WEIGHTS, "adapter*", "*.pt", "*.pth", "training_args.bin", "README.md")


def describe(folder: Path, text_column: str | None = None) -> str:
    """Write the files that MLflow needs to load the model in `folder`. Returns why that is impossible, or "".

    With `text_column`, MLflow's model takes data frames, and its signature names the column with the texts. Without it,
    the model takes texts. If a script has written the file MLmodel itself, nothing is changed.
    """
    if (folder / "MLmodel").is_file():
        text = (folder / "MLmodel").read_text(encoding="utf-8", errors="replace")
        return "" if "python_function" in text else "its MLmodel has no flavor python_function"
    config = config_in(folder) or {}
    names = config.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    task = next((task for end, task in _PIPELINES.items() if architecture.endswith(end)), "")
    if not has_weights(folder) and (folder / "adapter_config.json").is_file():
        return "it has only adapters, and MLflow loads only merged models"
    if not config:
        return "no config.json of a Hugging Face model"
    if not has_weights(folder):
        return "no weights (model.safetensors)"
    if not any((folder / name).is_file() for name in ("tokenizer_config.json", "tokenizer.json")):
        return "no tokenizer next to the weights"
    if not task:
        return f"no text pipeline for architectures={names}"
    try:
        _write(folder, task, architecture, text_column)
    except OSError as error:  # such as a full disk; the model itself is complete
        return f"MLmodel could not be written: {first_line(error)}"
    return ""


def has_weights(folder: Path) -> bool:
    """Return whether the folder has the full weights of a model, rather than only adapters."""
    return any(path for pattern in _WEIGHTS for path in folder.glob(pattern))


def _write(folder: Path, task: str, architecture: str, text_column: str | None) -> None:
    from paretune.specification.container import write_json  # takes a tenth of a second; most scripts leave no model

    (folder / _TOKENIZER).mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and not any(path.match(pattern) for pattern in _NO_TOKENIZER):
            shutil.copyfile(path, folder / _TOKENIZER / path.name)
    python, versions = platform.python_version(), dict[str, str]()
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name).partition("+")[0]  # pip cannot find versions with build tags such as +cpu
    requirements = ["mlflow", *(f"{name}=={text}" for name, text in versions.items())]
    (folder / "requirements.txt").write_text("\n".join(requirements) + "\n")
    # JSON is valid YAML, and PyYAML may be missing as well.
    write_json(folder / _ENVIRONMENT, {"python": python, "dependencies": ["-r requirements.txt"]})
    transformers = {
        "transformers_version": versions.get("transformers"),
        "code": None,
        "task": task,
        "pipeline_model_type": architecture,
        "model_binary": ".",
        "components": ["tokenizer"],
        "tokenizer_type": "AutoTokenizer",
    }
    environment = {"virtualenv": _ENVIRONMENT}
    pyfunc = {"loader_module": "mlflow.transformers", "python_version": python, "env": environment}
    if task == CLASSIFICATION:  # other pipelines truncate long texts without this
        pyfunc["config"] = {"truncation": True}
    source: dict[str, str] = {}
    if text_column is not None:
        source, loader = {"name": text_column}, Path(text_model.__file__)
        pyfunc |= {"loader_module": loader.stem, "code": _CODE}
        (folder / _CODE).mkdir(exist_ok=True)
        shutil.copyfile(loader, folder / _CODE / loader.name)
    columns = {"inputs": [_TEXT | source], "outputs": _OUTPUTS.get(task)}
    signature = {name: value and json.dumps(value) for name, value in columns.items()}
    flavors = {"transformers": transformers, "python_function": pyfunc}
    write_json(folder / "MLmodel", {"flavors": flavors, "signature": {**signature, "params": None}})


if __name__ == "__main__":  # `runner` asks for the model of a user's own script
    print(describe(Path(sys.argv[1])))
