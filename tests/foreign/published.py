"""Trainings as other projects publish them: which files, and rows in the formats that they read.

`python -m tests.foreign.published FOLDER` prints a command for each file that the folder lacks.
"""

import shutil
import struct
import sys
from pathlib import Path

FILES = {
    "huggingface/transformers 242e7fc66cfcb271496bf5a6d207db90c9b96817": (
        "examples/pytorch/text-classification/run_glue.py",
        "examples/pytorch/text-classification/requirements.txt",
    ),
    "huggingface/notebooks a62c822a83678ff70e7e4b57be92eacd1eddb3fe": (
        "sagemaker/01_getting_started_pytorch/scripts/train.py",
    ),
    "huggingface/evaluate 087d5cf371cd526dbf0a772e0ac7850512243304": ("metrics/accuracy/accuracy.py",),
    "Lightning-AI/pytorch-lightning 021e6b11da0ee2842011308f67693d5662a4e0db": (
        "examples/pytorch/basics/backbone_image_classifier.py",
    ),
    "aws/amazon-sagemaker-examples 61af807f143c41b3cc67e96125b2c099ac7f5f37": (
        "sagemaker-script-mode/xgboost_script/train_deploy_xgboost_with_dependencies.py",
        "sagemaker-script-mode/my_custom_library/__init__.py",
        "sagemaker-script-mode/my_custom_library/cross_validation_xgboost.py",
    ),
}
"""Repository on GitHub and commit to paths in it. The folder has them below the name of the repository, as a clone."""
_TRAINING, _ALL = 100, 160  # reviews
_DIGITS = {"train": (slice(None, 1500), 60_000), "t10k": (slice(1500, None), 297)}
"""Part of MNIST to its share of scikit-learn's 1,797 digits, which are repeated up to the expected number of rows."""


def local_files() -> dict[str, str]:
    """Path below the folder to address of each file."""
    pairs = [(source.split(), path) for source, paths in FILES.items() for path in paths]
    return {
        f"{name.partition('/')[2]}/{path}": f"https://raw.githubusercontent.com/{name}/{commit}/{path}"
        for (name, commit), path in pairs
    }


def missing_files(folder: Path) -> list[str]:
    """A command for each file that the folder lacks."""
    return [
        f"curl --fail --silent --show-error --create-dirs --output {folder / path} {address}"
        for path, address in local_files().items()
        if not (folder / path).is_file()
    ]


def prepare(scripts: Path, workspace: Path) -> None:
    """Copy the scripts into the workspace, and write the data that the guide's studies name there."""
    for path in local_files():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(scripts / path, workspace / path)
    script_mode = workspace / "amazon-sagemaker-examples" / "sagemaker-script-mode"
    shutil.copytree(script_mode / "my_custom_library", script_mode / "xgboost_script" / "my_custom_library")
    metric = workspace / "huggingface/modules/evaluate_modules/metrics/evaluate-metric--accuracy" / ("0" * 64)
    metric.mkdir(parents=True)  # where `evaluate` has what it once downloaded
    shutil.copy(scripts / "evaluate/metrics/accuracy/accuracy.py", metric)
    _write_reviews(workspace)
    _write_tables(workspace)


def _write_reviews(workspace: Path) -> None:
    """Real reviews as CSV and tokenised, as folders of the `datasets` library, and the model by its name on the hub."""
    import pandas as pd
    from datasets import Dataset
    from transformers import AutoTokenizer

    from paretune.specification.inputs import BUNDLED_DATASET, BUNDLED_MODEL, BUNDLED_MODEL_ID
    from paretune.training.rows import bundled

    model = workspace / BUNDLED_MODEL_ID
    model.parent.mkdir()
    model.symlink_to(bundled.model_folder(BUNDLED_MODEL))
    path, source = bundled.dataset_file(BUNDLED_DATASET)
    rows = pd.read_csv(path)
    reviews = rows[rows.source == source].drop_duplicates("text").sample(_ALL, random_state=0)
    reviews = reviews.rename(columns={"text": "sentence"})[["sentence", "label"]]
    tokenizer = AutoTokenizer.from_pretrained(model)
    (workspace / "reviews").mkdir()
    for name, other, rows in (("train", "train", reviews[:_TRAINING]), ("validation", "test", reviews[_TRAINING:])):
        rows.to_csv(workspace / "reviews" / f"{name}.csv", index=False)
        words = tokenizer(list(rows.sentence), padding="max_length", truncation=True, max_length=64)
        Dataset.from_dict({**words, "label": list(rows.label)}).save_to_disk(workspace / "tokenized" / other)


def _write_tables(workspace: Path) -> None:
    """Scikit-learn's diabetes as a CSV with the target first, and its digits in the files of MNIST."""
    import numpy as np
    from sklearn.datasets import load_diabetes, load_digits

    rows, target = load_diabetes(return_X_y=True)
    (workspace / "diabetes").mkdir()
    np.savetxt(workspace / "diabetes" / "train.csv", np.column_stack([target, rows]), delimiter=",")
    digits = load_digits()
    images = np.kron(digits.images / 16 * 255, np.ones((3, 3))).astype("uint8")
    images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    for parent in (workspace / "pytorch-lightning/examples/Datasets", workspace / "data"):
        folder = parent / "MNIST" / "raw"
        folder.mkdir(parents=True)
        for name, (part, count) in _DIGITS.items():
            chosen = np.resize(np.arange(len(images))[part], count)
            labels = digits.target[chosen].astype("uint8")
            (folder / f"{name}-images-idx3-ubyte").write_bytes(
                struct.pack(">IIII", 2051, count, 28, 28) + images[chosen].tobytes()
            )
            (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


if __name__ == "__main__":
    print("\n".join(missing_files(Path(sys.argv[1]))), end="")
