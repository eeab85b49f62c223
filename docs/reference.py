"""Write the pages of docs/reference that are generated from the code: commands, job parameters, metrics and tags.

    python docs/reference.py            # into docs/reference; a test fails when they are out of date

It also writes studies/study.schema.json, which editors use to check and complete study files.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from paretune.cli import COMMANDS, command_named
from paretune.specification import metrics
from paretune.specification.declaration import experimental_names, spell
from paretune.specification.job import JobSpec
from paretune.specification.launchers import known
from paretune.studies.definition.file import TRAINING_KEYS, StudyFile
from paretune.tracking import schema

ROOT = Path(__file__).resolve().parents[1]
_REMARK = "<!-- Made by `python docs/reference.py`; edits here are lost. -->"
_CONSTANT = re.compile(
    r'^# (?P<title>.+)$|^[A-Z_0-9]+ = "(?P<name>[^"]+)"(?:  # (?P<comment>.*))?\n(?:"""(?P<below>[^"]*)""")?',
    re.MULTILINE,
)
"""Matches a title, or a constant with its explanation in a comment or below it."""
_KEPT = {*("anyOf", "type", "enum", "items", "minimum", "maximum", "description", "default", "$ref")}
"""The fields of a schema that are kept for each key of a study file."""
_MORE_METRICS = (
    ("train/*", "curves over the steps: loss, learning rate, gradient norm, epoch, samples per second"),
    ("eval/*", "curves of the evaluations"),
    ("system/*", "use of the machine's CPU, memory and GPU memory"),
    ("train_rows", "number of training rows; likewise `validation_rows` and `test_rows`"),
    ("train_tokens", "tokens of the training rows without padding; likewise `validation_tokens` and `test_tokens`"),
    ("train_dropped_tokens", "tokens of joined texts after the last whole row; likewise `validation_dropped_tokens`"),
    (
        "trials_done",
        "curve of a study, as are `spent_usd`, `hypervolume` and `best_f1` (or `best_` and another metric)",
    ),
)
_MORE_TAGS = (
    ("paretune.used_NAME", "the value of parameter `NAME`, if `mlflow run` recorded it with a shell's quotes"),
    ("paretune.basis", "where the seconds of a simulated job come from, in words"),
    ("paretune.job_arn", "ARN of the training job"),
    ("paretune.image_uri", "image that the job ran in"),
    ("paretune.spot_saving", "share of the training seconds that spot did not bill"),
)
_NAMED_ONLY = {
    f"{schema.PREFIX}{name}"
    for name in (
        *(
            "training_seconds",
            "source",
            "watched_run",
            "watched_by",
            "given",
            "spec_hash",
            "dataset_key",
            "code_key",
            "machine",
            "settings",
            "claimed_at",
        ),
        *(
            "account",
            "region",
            "secondary_status",
            "copied_from",
            "study_mark",
            "study_digest",
            "driven_until",
            "study_run",
            "row_key",
        ),
        *("source_line", "job_arn", "image_uri", "used_instance_type", "used_instance_count", "used_precision"),
        *("chosen_batch", "used_device", "used_per_device_train_batch_size", "used_gradient_accumulation_steps"),
        *("price_usd_per_hour", "price_region", "price_as_of", "price_source", "out_of_memory_retries", "repeated"),
        *(
            "model_revision",
            "estimate_basis",
            "launcher",
            "job_name",
            "failure_reason",
            "reserved",
            "named",
            "warnings",
            "user",
            "team",
        ),
        *("used_versions", "trial", "no_model", "basis", "spot_saving", "remarks", "budget", "model", "command"),
    )
}
"""Tags that the page lists without an explanation."""


def pages() -> dict[str, str]:
    """Return the text of each generated file by its path from the root of the repository."""
    texts = {"commands": _commands(), "job-parameters": _job_parameters(), "recorded": _recorded()}
    made = {f"docs/reference/{name}.md": "\n".join([_REMARK, *text]).rstrip() + "\n" for name, text in texts.items()}
    return made | {"studies/study.schema.json": json.dumps(study_schema(), indent=1) + "\n"}


def study_schema() -> dict[str, Any]:
    """Return the JSON schema of a study file: keys, types, choices and bounds. `paretune study` checks the rest."""
    made = StudyFile.model_json_schema()
    models = [made, *made["$defs"].values()]
    for model in models:
        model["patternProperties"] = {r"^\w+\.": {}}  # a name with a dot, such as lora.r, sets a nested value
        for field in model["properties"].values():
            for name in set(field) - _KEPT:
                del field[name]
            if field.get("type") == "array":
                field["type"] = ["array", "string"]  # a,b
    job = made["$defs"]["JobValues"]["properties"]
    made["properties"] |= {name: job[name] for name in TRAINING_KEYS}
    return made


def _list(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield an item for each name, with its meaning."""
    yield from (f"- `{name}`: {text}" for name, text in rows)
    yield ""


def _parameters(schemas: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield an item for each parameter: its meaning, its choices unless the meaning names them, and its default."""
    for name, field in schemas.items():
        default = spell(field.get("default")) if field.get("type") != "object" else ""
        meaning, choices = " ".join(field["description"].split()).rstrip("."), field.get("enum", ())
        if not all(re.search(rf"\b{re.escape(word)}\b", meaning) for word in choices):
            meaning += f"; one of {', '.join(f'`{word}`' for word in choices)}"
        yield f"- `{name}`{f' (`{default}`)' if default and default != 'false' else ''}: {meaning}"
    yield ""


def _commands() -> Iterator[str]:
    with_jobs = [f"`{name}`" for name in COMMANDS if command_named(name).takes_jobs]
    yield "# Commands\n"
    yield "`paretune COMMAND --name value`, or `mlflow run . -e COMMAND -P name=value`. Defaults are in parentheses."
    yield "`paretune COMMAND --help` also shows types and bounds, and `--json` prints [one document](../api.md#json).\n"
    yield f"{', '.join(with_jobs[:-1])} and {with_jobs[-1]} also take the [parameters of a job](job-parameters.md).\n"
    for name, entry in COMMANDS.items():
        command = command_named(name)
        yield f"## {name}\n"
        line = f" (`paretune {name} {entry.first_word.upper()}`)" if entry.first_word else ""
        yield f"{entry.about[0].upper()}{entry.about[1:]}{line}.\n"
        names = list(command.options.model_fields) if command.options else []
        own = {key: command.options.schema_at([key]) for key in names if command.options}
        if own:
            yield from _parameters(own)
        if in_the_file := [f"`{key}`" for key in names if key in command.excluded]:
            yield f"Only in the file, not on the command line: {', '.join(in_the_file)}.\n"


def _job_parameters() -> Iterator[str]:
    yield "# Parameters of a job\n"
    yield "The default, if there is one, is in parentheses. On the command line, an empty value means the default,"
    yield "except in `environment`, where the variable gets an empty value."
    yield "Switches are off unless they show a default."
    yield "`paretune train --help all` also shows types and bounds.\n"
    launchers = [f"launcher={name}" for name, traits in known().items() if traits.is_experimental]
    listed = ", ".join(f"`{name}`" for name in [*launchers, *experimental_names(JobSpec)])
    yield "These have never run on the hardware or service for which they were written. Help, dry runs and results mark"
    yield f"them as experimental: {listed}.\n"
    groups, title = dict[str, dict[str, Any]](), ""
    for name in JobSpec.model_fields:
        field = JobSpec.schema_at([name])
        title = field.get("group") or title
        inner = {f"{name}.{key}": JobSpec.schema_at([name, key]) for key in field.get("properties", ())}
        groups.setdefault(title, {}).update(inner or {name: field})
    for title, fields in groups.items():
        yield f"## {title[0].upper()}{title[1:]}\n"
        yield from _parameters(fields)


def _recorded() -> Iterator[str]:
    yield "# What MLflow records\n"
    yield "Parameters that were set are recorded under their names. paretune's own training"
    yield "also records a few that were not set, such as model and seed."
    yield "A metric that is unknown is absent, never 0 or NaN."
    yield "For example, type this query into MLflow's search box: `metrics.f1 > 0.84 and metrics.cost_usd < 0.01`.\n"
    yield "## Metrics\n"
    rows = [row for _, found in _constants(metrics) for row in [*found, *_MORE_METRICS]]
    yield from _list(row for row in rows if row[0] not in metrics.FACTS and not row[0].endswith("."))
    renamed = ", ".join(f"`{name}` as `{target}`" for name, target in metrics.SCRIPT_METRICS.items())
    yield "Metrics of your own training keep their names. The following are also recorded under a second name:"
    yield f"{renamed}.\n"
    yield "## Facts\n"
    yield "Sizes of the model and of the data, and estimates, hardly differ between the runs of a study. They are in"
    yield "the tag `paretune.facts`, so that MLflow's pages begin with results. Baselines are there from the start of a"
    yield "job, and metrics at its end.\n"
    yield from _list((f"{schema.PREFIX}{name}", text) for name, text in rows if name in metrics.FACTS)
    yield "## Tags\n"
    named = {name: text for _, found in _constants(schema) for name, text in [*found, *_MORE_TAGS]}
    tags = {name: text for name, text in named.items() if re.fullmatch(rf"{re.escape(schema.PREFIX)}\w+", name)}
    yield from _list((name, text) for name, text in tags.items() if name not in {*_NAMED_ONLY, *schema.MEMBERS})
    yield "These are members of the JSON tags `paretune.watch` and `paretune.facts`, and no tags of their own:\n"
    yield from _list((name, text) for name, text in tags.items() if name in schema.MEMBERS and name not in _NAMED_ONLY)
    others = ", ".join(f"`{name}`" for name in tags if name in _NAMED_ONLY)
    yield f"The other tags explain themselves, or only paretune itself uses them: {others}.\n"


def _constants(module: ModuleType) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the sections of a module: each title, with the value and explanation of its text constants."""
    sections: list[tuple[str, list[tuple[str, str]]]] = [("", [])]
    for match in _CONSTANT.finditer(inspect.getsource(module)):
        if match["title"]:
            sections.append((match["title"].rstrip("."), []))
        elif text := match["comment"] or match["below"]:
            text = re.sub(r"^[A-Z](?=[a-z]*\b)", lambda first: first[0].lower(), " ".join(text.split()))
            sections[-1][1].append((match["name"], text if ". " in text else text.rstrip(".")))
    return sections


if __name__ == "__main__":
    for path, text in pages().items():
        (ROOT / path).write_text(text)
