"""The tag `paretune:run` of a bill's lines, whichever column and form it is in.

CUR 2.0 has maps in `resource_tags` and in `tags`, which CSV files hold as JSON; a query of an export may take single
keys out of them, as columns (resource_tags.user_paretune_run; AWS Data Exports user guide, read 2026-11-22).
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paretune.commands.bill.lines import RUN_TAG, tag_name
from paretune.core.untrusted import parse_json

_MAPS = ("resource_tags", "tags")


def is_tag_column(name: str) -> bool:
    """Whether a column may hold the tag of a run."""
    return name in _MAPS or tag_name(name) == RUN_TAG


def run_tags(batch: Any) -> dict[int, str]:
    """Row of an Arrow batch to the value of its tag; the first of several columns that tell one counts."""
    found: dict[int, str] = {}
    for name in filter(is_tag_column, batch.schema.names):
        found = _of_column(name, batch.column(name)) | found
    return found


def _of_column(name: str, column: Any) -> dict[int, str]:
    kind = column.type
    if pa.types.is_map(kind):
        return _of_pairs(column.offsets, column.keys, column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_list(column)
    texts = pc.fill_null(pc.cast(column, pa.string()), "")
    if name in _MAPS:
        return _of_texts(texts)
    return {place: value for place, value in enumerate(texts.to_pylist()) if value}


def _of_list(column: Any) -> dict[int, str]:
    """A list of pairs of a key and a value, as some converters write a map."""
    kind = column.type.value_type
    if not (pa.types.is_struct(kind) and kind.num_fields == 2):
        return {}
    pairs = column.values
    return _of_pairs(column.offsets, *(pairs.field(place) for place in range(2)))


def _of_pairs(offsets: Any, keys: Any, values: Any) -> dict[int, str]:
    encoded = pc.dictionary_encode(pc.cast(keys, pa.string()))
    ours = [number for number, key in enumerate(encoded.dictionary.to_pylist()) if key and tag_name(key) == RUN_TAG]
    if not ours:
        return {}
    indices = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(np.isin(indices, ours))
    rows = np.searchsorted(offsets.to_numpy(), places, side="right") - 1
    told = pc.cast(values, pa.string()).take(pa.array(places)).to_pylist()
    return {int(row): value for row, value in zip(rows, told, strict=True) if value and 0 <= row < len(offsets) - 1}


def _of_texts(texts: Any) -> dict[int, str]:
    found = {}
    for place in np.flatnonzero(pc.match_substring(texts, "paretune", ignore_case=True).to_numpy(zero_copy_only=False)):
        try:
            tags = parse_json(texts[int(place)].as_py())
        except ValueError:  # no JSON: a text that somebody has put there
            continue
        pairs = tags.items() if isinstance(tags, dict) else ()
        named = [value for key, value in pairs if tag_name(key) == RUN_TAG]
        found.update({int(place): value for value in named if value and isinstance(value, str)})
    return found
