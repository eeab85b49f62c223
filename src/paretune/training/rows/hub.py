"""The Hugging Face hub: renamed data sets, whether it answers, and explanations of its errors."""

import os
from collections.abc import Iterator

from paretune.core.errors import first_line
from paretune.estimating.architecture import accepts_connections

# One-word names of data sets, which current `datasets` releases reject (huggingface/datasets#8612), to the names that
# the hub redirects them to.
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


def endpoint() -> str:
    """Address of the hub: HF_ENDPOINT, or the public one."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def go_offline_if_unreachable() -> None:
    """Set HF_HUB_OFFLINE for this process when the hub accepts no connection, to save minutes of retries per file.

    Must be called before `datasets`, `transformers` or `huggingface_hub` is imported: they read it at import. With a
    proxy in the environment it has no effect.
    """
    if not accepts_connections(endpoint(), os.environ):
        os.environ["HF_HUB_OFFLINE"] = "1"


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE is set, by the user or by `go_offline_if_unreachable`."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "TRUE", "YES", "ON"}


def explain(kind: str, name: str, error: BaseException) -> str:
    """One sentence about why loading the `kind` (model or dataset) `name` failed.

    The client libraries wrap errors in one another, so the class names of the whole chain are compared; they are more
    stable than the messages.
    """
    names = {type(link).__name__ for link in chain(error)}
    if "GatedRepoError" in names:
        return f"{kind} {name} needs an access token with accepted terms: log in with `hf auth login`"
    if names & {"RepositoryNotFoundError", "DatasetNotFoundError"} and not is_offline():
        return f"{kind} {name} is neither a local path nor on the hub at {endpoint()}: check the spelling"
    no_answer = {"ConnectionError", "ConnectError", "ConnectTimeout", "ReadTimeout"}
    if is_offline() or names & (no_answer | {"LocalEntryNotFoundError", "OfflineModeIsEnabled"}):
        reached = f"is not in the local cache and the hub at {endpoint()} cannot be reached"
        return f"{kind} {name} {reached}: check the connection and HF_ENDPOINT, or give a local path"
    return f"{kind} {name} cannot be loaded: {reason(error)}"


def reason(error: BaseException) -> str:
    """First line of the error that caused `error`."""
    return first_line(list(chain(error))[-1])


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then the errors that it was raised from, outermost first."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__
