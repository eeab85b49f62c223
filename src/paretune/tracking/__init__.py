"""Runs in MLflow: `store` opens and finds them, `run_writer` writes one, `recorded_run` is one that was read back.

Few other modules import MLflow: `projects`, for users' MLflow projects, `commands.mlflow_run`, the checks of `doctor`,
and `training.text_model`, which travels with a model. In this folder, `store`, `run_writer`, `models`, `data_sets` and
`request_headers` import MLflow, which takes more than a second of CPU. So other folders import these modules inside
functions if a command may not need them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
"""MLflow settings that shorten the wait for a dead server, because jobs must be watched meanwhile."""
_lock, _blocks, _set = Lock(), [0], list[str]()


@contextmanager
def giving_up_soon() -> Iterator[None]:
    """Apply PATIENCE inside the block, except to variables that the user has set. Several threads may do so at once."""
    with _lock:
        _blocks[0] += 1
        if _blocks[0] == 1:
            _set[:] = PATIENCE.keys() - os.environ.keys()
            os.environ.update({name: PATIENCE[name] for name in _set})
    try:
        yield
    finally:
        with _lock:
            _blocks[0] -= 1
            if not _blocks[0]:
                for name in _set:
                    os.environ.pop(name, None)
