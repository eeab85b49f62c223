"""The tags of a run as paretune reads them."""

from typing import Any

from paretune.tracking import schema


def tags_of(run: Any) -> dict[str, str]:
    """Return the tags of a run of MLflow, with the members of paretune's documents as tags."""
    return schema.unpacked(run.data.tags)
