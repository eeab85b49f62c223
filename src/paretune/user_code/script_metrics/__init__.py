"""Metrics of a user's own training run, read from its loggers, its files and the lines that it prints.

This folder is copied into jobs unchanged, so its code needs only the standard library of Python 3.8 or newer. If
several sources have a metric of the same name, the first source in this list counts:

    metric_definitions   the regular expressions of SageMaker's `metric_definitions`
    MLflow               the store that the job provides (loggers.logging_environment)
    W&B                  history and summary of its offline run
    TensorBoard          scalars of event files
    tables               CSV_FILES of loggers, such as Lightning's metrics.csv
    files                RESULT_FILES of loggers, such as Hugging Face's all_results.json
    printed lines        see printed_line and gathering

`progress` reads how far a running training has come.
"""

from .gathering import PrintedNumbers
from .loggers import (
    CURVES,
    LOGGERS,
    STORE,
    Point,
    Source,
    is_log_file,
    logged,
    logging_environment,
    read_curves,
    write_curves,
    written_file,
)
from .printed_line import (
    LONGEST_LINE,
    dictionary_in,
    finite_numbers,
    is_setting,
    numbers_in,
    setting_names,
)
from .progress import ProgressReader, totals_in

__all__ = [
    "CURVES",
    "LOGGERS",
    "LONGEST_LINE",
    "STORE",
    "Point",
    "PrintedNumbers",
    "ProgressReader",
    "Source",
    "dictionary_in",
    "finite_numbers",
    "is_log_file",
    "is_setting",
    "logged",
    "logging_environment",
    "numbers_in",
    "read_curves",
    "setting_names",
    "totals_in",
    "write_curves",
    "written_file",
]
