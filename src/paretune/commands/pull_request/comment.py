"""A comment for a pull request: F1, dollars and speed of its job beside those of the main branch.

    python -m paretune.commands.pull_request.comment RESULT.json [MAIN.json]    # documents of `paretune main --json`

prints Markdown. `action.yml` calls it.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.estimating.noise import F1_NOISE, SECONDS_NOISE
from paretune.specification import metrics

_ERRORS = 2.0 * math.sqrt(2)
"""Standard deviations of one run from which two runs count as different: two of their difference."""
_ROWS = (  # metric, words, format, whether more is better (None: neither), noise, whether that is a share
    (metrics.F1, "F1 (macro, validation)", ".4f", True, F1_NOISE, False),
    (metrics.ROUGE_L, "ROUGE-L (validation)", ".4f", None, 0.0, False),
    (metrics.PERPLEXITY, "perplexity", ".3f", False, F1_NOISE, True),
    (metrics.COST_USD, "cost, USD", ".4g", False, SECONDS_NOISE, True),
    (metrics.TRAIN_SECONDS, "training, s", ",.1f", False, SECONDS_NOISE, True),
    (metrics.THROUGHPUT_SAMPLES, "throughput, samples/s", ",.1f", True, SECONDS_NOISE, True),
    (metrics.BASELINE_TFIDF, "TF-IDF + logistic regression", ".4f", None, 0.0, False),
)
_MADE_BY_THE_RUN = {"max_cost_usd", "max_runtime_minutes", "tags"}


def comment(branch: Mapping[str, Any], main: Mapping[str, Any] | None) -> str:
    """Return Markdown with a table, the changes beyond noise, and the settings that differ; `main` may be None.

    Noise is the assumed difference of two equal runs (`estimating.noise`): a difference counts from two standard
    errors on.
    """
    branch_metrics, main_metrics = branch["metrics"], {} if main is None else main["metrics"]
    lines = ["### paretune", "", "| | this branch | main | change |", "| --- | ---: | ---: | --- |"]
    for name, words, form, more_is_better, noise, is_share in _ROWS:
        if name in branch_metrics or name in main_metrics:
            cells = [f"{figures[name]:{form}}" if name in figures else "" for figures in (branch_metrics, main_metrics)]
            change = (
                _change(branch_metrics[name], main_metrics[name], more_is_better, noise, is_share)
                if name in branch_metrics and name in main_metrics
                else ""
            )
            lines.append(f"| {words} | {cells[0]} | {cells[1]} | {change} |")
    lines += ["", *_remarks(branch, main)]
    return "\n".join(lines).rstrip() + "\n"


def _change(value: float, base: float, more_is_better: bool | None, noise: float, is_share: bool) -> str:
    difference = value - base
    share = f" ({difference / base:+.1%})" if is_share and base else ""
    if more_is_better is None or not math.isfinite(difference):
        return ""
    if abs(difference) <= _ERRORS * noise * (abs(base) if is_share else 1.0):
        return f"within noise{share}"
    word = "better" if (difference > 0) == more_is_better else "**worse**"
    return f"{word}{share or f' by {abs(difference):.4f}'}"


def _remarks(branch: Mapping[str, Any], main: Mapping[str, Any] | None) -> list[str]:
    remarks = [f"- {remark}" for remark in branch.get("remarks", [])]
    if main is None:
        return [*remarks, "- there is no result of the main branch yet: its next run is kept"]
    names = [name for name in {**branch["params"], **main["params"]} if name not in _MADE_BY_THE_RUN]
    for name in names:
        value, base = branch["params"].get(name), main["params"].get(name)
        if value != base:
            remarks.append(f"- setting `{name}`: {_setting_text(value)} here, {_setting_text(base)} on main")
    if branch["origin"] != main["origin"]:
        remarks.append(f"- {branch['origin']} here, {main['origin']} on main: not to be compared")
    return remarks


def _setting_text(value: object) -> str:
    return "not set" if value in (None, "") else f"`{value}`"


def read(path: str) -> dict[str, Any]:
    """Read the document of a finished job; raises BadInput if the file holds something else."""
    try:
        document = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise BadInput([f"{path} must be what `paretune main --json` prints: {error}"]) from error
    if not isinstance(document, dict) or not isinstance(document.get("metrics"), dict):
        raise BadInput([f"{path} must be what `paretune main --json` prints of a finished job"])
    return {"params": {}, "origin": "measured"} | document


def run(words: Sequence[str]) -> str:
    """Return the comment on the job of the first file, compared with that of the second, which need not exist."""
    if not 1 <= len(words) <= 2:
        raise BadInput(["usage: python -P -m paretune.commands.pull_request.comment RESULT.json [MAIN.json]"])
    main = read(words[1]) if len(words) > 1 and Path(words[1]).is_file() else None
    return comment(read(words[0]), main)


if __name__ == "__main__":
    try:
        print(run(sys.argv[1:]), end="")
    except BadInput as error:
        sys.exit(f"paretune: {error}")
