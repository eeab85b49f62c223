"""Write the pages of docs/reference that follow from the code: commands, parameters, files, metrics, tags, exit codes.

    python docs/reference.py            # into docs/reference; a test says when they are out of date

What the code does not say in words is in the dictionaries below; a test holds their keys against the code.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from paretune.cli import COMMANDS, command_named
from paretune.core import errors
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.specification.parameters import spell
from paretune.specification.profile import SETTABLE
from paretune.studies.definition.file import StudyFile
from paretune.tracking import schema

FOLDER = Path(__file__).parent / "reference"

PRODUCES = {
    "train": "prints F1 beside its baselines, speed, seconds and dollars. The run has `report.json`, the model, "
    "`classification_report.txt` and `confusion_matrix.png` (classes), `label_report.csv` (several labels), "
    "`profile/` (with `profile_steps`).",
    "estimate": "prints a row per cluster and batch. Its run has `estimate.csv` and `estimate.png`.",
    "prices": "prints the prices; `refresh` writes them into `~/.cache/paretune/prices`.",
    "report": "prints tables and findings. Its run has `report.html` with charts, `report.md` and `report.csv`.",
    "import": "makes a run, marked `published`, of each row of the table.",
    "study": "prints the front, a recommendation and the command that launches it. Its run has `pareto.html`, "
    "`pareto.csv` and `study.yaml`; with `points` also `design.csv`, `correlation.csv` and `correlation.png`.",
    "sync": "prints a line for each run that it filled or closed.",
    "reconcile": "prints billed against recorded dollars. Its run has `reconcile.csv`.",
    "demo": "plays the study on the virtual clock, prints its answer and opens its page; everything is in "
    "`.paretune/demo`.",
    "doctor": "prints a line for each check; with `paid` it also writes a report into `PARETUNE_HOME/doctor`.",
    "mcp": "answers an agent on standard input and output until it hangs up.",
}
"""What each command prints and writes."""

CURVES = {
    "train/*": "curves of the training by step: loss, learning rate, gradient norm, epoch, samples per second",
    "eval/*": "curves of the evaluations by step",
    "system/*": "processor, memory and GPU memory of the machine by step",
    "train_rows": "rows to train on; `validation_rows` and `test_rows` alike",
    "train_tokens": "their tokens without padding; `validation_tokens` and `test_tokens` alike",
}
"""Metrics whose names are not constants in `specification.metrics`."""
OF_COMMANDS = {"trials": "study: number of trials"}
"""Metrics of runs that are no job."""
FACTS = {
    "paretune.basis": "what the seconds of a simulated job stand on, in words",
    "paretune.job_arn": "ARN of the training job",
    "paretune.image_uri": "image that the job ran in",
    "paretune.spot_saving": "share of the training seconds that spot did not bill",
}
"""Tags that launchers set: those of their facts that have no constant in `tracking.schema`."""

VARIABLES = {
    "PARETUNE_HOME": "folder of jobs, data, checkpoints and ledgers; by default `.paretune` in the current folder",
    "PARETUNE_PROFILE": "file with defaults; by default `paretune.toml` in the current folder",
    "PARETUNE_STORAGE": "database of studies, designs and budgets: `sqlite:///FILE` or `postgresql://...`",
    "PARETUNE_PRICES": "your own CSV of prices; it wins over all others",
    "PARETUNE_PRICE_LIST_URL": "mirror of AWS's public price list",
    "PARETUNE_TRACE_SECONDS": "seconds that an estimate may spend on tracing a model's memory (120); 0 traces nothing",
    "PARETUNE_ROLE": "IAM role of the jobs, if no parameter, profile or SDK configuration names one",
    "PARETUNE_BUCKET": "S3 bucket, likewise",
    "PARETUNE_ALLOW_NO_GPU": "1: let a job run on a GPU instance without a GPU, for emulated accounts",
}
"""Environment variables for users, beside those of MLflow, AWS and Hugging Face."""
INTERNAL_VARIABLES = {
    "PARETUNE_STARTER",
}
"""Variables that one process of paretune sets for another one."""

HOME_FILES = {
    "jobs": "a folder per local job: log, events, `report.json`, and the model in `model/`",
    "checkpoints": "checkpoints of local jobs, by run, so that the next attempt of a run continues",
    "datasets": "tokenised rows, by contents; later jobs share them",
    "prepared": "which rows of `datasets` belong to which parameters",
    "fetched": "objects read from S3",
    "studies.db": "ledgers of studies, designs and budgets, and Optuna's trials",
    "stores": "records of MLflow projects, until they are copied",
    "traced-steps": "memory of models, as traced",
    "doctor": "reports of `doctor --paid true`",
    "bills": "bills read from S3",
    "agents": "jobs that agents launched",
}
"""What lies in PARETUNE_HOME."""

EXIT_ZERO = "done"
MLFLOW_NOTE = "`mlflow run` itself ends with 1 in place of any code but 0."


def pages() -> dict[str, str]:
    """File name of each generated page to its text."""
    return {
        "commands.md": _page("Commands", _commands()),
        "job-parameters.md": _page("Parameters of a job", _job_parameters()),
        "files.md": _page("Files", _files()),
        "recorded.md": _page("What MLflow records", _recorded()),
        "environment.md": _page("Exit codes and environment variables", _environment()),
    }


def _page(title: str, lines: Iterable[str]) -> str:
    remark = "<!-- Made by `python docs/reference.py`; edits here are lost. -->"
    return "\n".join([remark, f"# {title}", "", *lines]).rstrip() + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---' for _ in header)} |"
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _commands() -> Iterator[str]:
    yield "`paretune COMMAND --name value`, or `mlflow run . -e COMMAND -P name=value`. Every command takes `--json`:"
    yield "one document on standard output, with [these fields](../api.md#-json)."
    yield ""
    for name, entry in COMMANDS.items():
        command = command_named(name)
        yield f"## {name}"
        yield ""
        yield f"{entry.about[0].upper()}{entry.about[1:]}. It {PRODUCES.get(name, '')}"
        yield ""
        if entry.first_word:
            yield f"The word after the command is `{entry.first_word}`: `paretune {name} {entry.first_word.upper()}`."
            yield ""
        own = {key: model.schema_at([key]) for key, model in command.models().items() if model is not JobSpec}
        if own:
            yield from _parameter_table("name", own)
        if command.takes_jobs:
            without = f", without {', '.join(map(_code, command.excluded))}" if command.excluded else ""
            yield f"It takes the [parameters of a job](job-parameters.md){without}."
            yield ""


def _job_parameters() -> Iterator[str]:
    yield "Every command that describes a job takes these. An empty value means the default."
    yield ""
    groups: dict[str, dict[str, Any]] = {}
    title = ""
    for name in JobSpec.model_fields:
        schema = JobSpec.schema_at([name])
        title = schema.get("group") or title
        inner = {f"{name}.{key}": JobSpec.schema_at([name, key]) for key in schema.get("properties", ())}
        groups.setdefault(title, {}).update({name: schema, **inner})
    for title, schemas in groups.items():
        yield f"## {title[0].upper()}{title[1:]}"
        yield ""
        yield from _parameter_table("parameter", schemas)


def _parameter_table(head: str, schemas: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    rows = [
        (
            f"`{name}`",
            schema["description"],
            _allowed(schema),
            _code("" if schema.get("type") == "object" else spell(schema.get("default"))),
        )
        for name, schema in schemas.items()
    ]
    return _table((head, "meaning", "values", "default"), rows)


def _allowed(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(map(_code, schema["enum"]))
    types = {"boolean": "`true`, `false`", "integer": "whole number", "number": "number", "string": "text"}
    types |= {"array": "texts with commas", "object": "JSON"}
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    bounds = [f"{word} {schema[key]:,}" for key, word in words.items() if key in schema]
    return " ".join([types.get(schema.get("type", ""), "text"), *bounds])


def _files() -> Iterator[str]:
    yield "## Study"
    yield ""
    yield "YAML, such as `studies/smoke.yaml`. Keys with one value and all parameters of a job can also be typed; typed"
    yield "values win. `entry_script` and `entry_point` may stand beside `job`."
    yield ""
    yield from _parameter_table("key", {name: StudyFile.schema_at([name]) for name in StudyFile.model_fields})
    yield "## Budgets of a month"
    yield ""
    yield "YAML, named by `budget`: `storage` (a database; by default `PARETUNE_STORAGE`, else a file beside it) and"
    yield "`budgets`, a list of `name`, `usd_per_month` and `tags` ([money](../money.md#budgets))."
    yield ""
    yield "## paretune.toml"
    yield ""
    names = ", ".join(map(_code, sorted(SETTABLE)))
    yield f"Defaults of a team, in TOML ([team set-up](../team.md#one-profile)): {names}."
    yield ""
    yield "## PARETUNE_HOME"
    yield ""
    yield from _table(("in it", "what"), [(f"`{name}`", text) for name, text in HOME_FILES.items()])


def _recorded() -> Iterator[str]:
    yield "Parameters are recorded under their names, if they are not empty. A metric that is not known is absent,"
    yield "never 0 or NaN. In the search box of MLflow: `metrics.f1 > 0.84 and metrics.cost_usd < 0.01`."
    yield ""
    yield "## Metrics"
    yield ""
    yield from _table(
        ("metric", "meaning"), [(f"`{name}`", text) for _, rows in _constants(metrics) for name, text in rows]
    )
    yield (
        "Metrics of your own training keep their names, but for these: "
        + ", ".join(f"`{name}` becomes `{target}`" for name, target in metrics.SCRIPT_METRICS.items())
        + "."
    )
    yield ""
    yield from _table(("also", "meaning"), [(f"`{name}`", text) for name, text in {**CURVES, **OF_COMMANDS}.items()])
    yield "## Tags"
    yield ""
    for title, rows in _constants(schema):
        tags = [(f"`{name}`", text) for name, text in rows if re.search(r"\.\w", name)]
        if tags:
            yield f"### {title.rstrip('.')}"
            yield ""
            yield from _table(("tag", "meaning"), tags)
    yield "### Set by launchers"
    yield ""
    yield from _table(("tag", "meaning"), [(f"`{name}`", text) for name, text in FACTS.items()])


def _constants(module: ModuleType) -> list[tuple[str, list[tuple[str, str]]]]:
    """Sections of a module's text constants; of each its title, and the value and the explanation of every constant.

    The explanation is the comment in the constant's line, or the text below it. A section begins with a comment of its
    own line after an empty one.
    """
    source = inspect.getsource(module)
    lines = source.splitlines()
    sections: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    body = ast.parse(source).body
    previous = 0
    for node, following in zip(body, [*body[1:], None], strict=True):
        between = [line for line in lines[previous : node.lineno - 1] if line.startswith("# ")]
        if between:
            sections.append((between[-1].removeprefix("# "), []))
        previous = node.end_lineno or node.lineno
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            name = node.value.value
            comments = re.findall(r"  # (.*)$", "\n".join(lines[node.lineno - 1 : node.end_lineno]), re.MULTILINE)
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                comments = [str(following.value.value).strip()]
            sections[-1][1].append((name, _as_cell(" ".join(comments))))
    return sections


def _as_cell(text: str) -> str:
    """The text without a capital at its beginning, and without a full stop at its end if it is one sentence."""
    text = re.sub(r"^[A-Z](?=[a-z]*\b)", lambda match: match[0].lower(), text)
    return text if ". " in text or ".\n" in text else text.rstrip(".")


def _environment() -> Iterator[str]:
    yield "## Exit codes"
    yield ""
    yield from _table(("exit code", "error", "what to do"), [("0", "", EXIT_ZERO), *_exit_codes()])
    yield MLFLOW_NOTE
    yield ""
    yield "## Environment variables"
    yield ""
    yield "Settings of MLflow (`MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`), AWS (`AWS_PROFILE`, `AWS_REGION`) and"
    yield "Hugging Face (`HF_HOME`, `HF_ENDPOINT`) hold as everywhere."
    yield ""
    yield from _table(("variable", "meaning"), [(f"`{name}`", text) for name, text in VARIABLES.items()])


def _exit_codes() -> list[tuple[str, str, str]]:
    tree = inspect.getdoc(errors) or ""
    rows = re.findall(r"[├└]── (\w+) +(\d+) +(.+)", tree)
    return [(code, f"`{name}`", meaning) for name, code, meaning in rows]


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
