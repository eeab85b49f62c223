"""Reads and binds a user's own script, and prepares its job: the files of its folder and the data that it reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paretune.core import watchdog
from paretune.core.errors import collecting, refuse
from paretune.core.reading import LARGEST_SETTINGS, at_home, exists, read_text
from paretune.core.shell import options
from paretune.launchers import archive
from paretune.specification.container import RUNNER, Command, JobInputs, UserCode
from paretune.specification.inputs import CHANNELS, IN_S3, SCRIPT_CHANNELS, in_channel, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.metrics import SCRIPT_METRICS
from paretune.user_code import child, runner, script_metrics
from paretune.user_code.binding import bind, described
from paretune.user_code.script import Script
from paretune.user_code.trainer_script import training_of

RUNNER_FILES = {
    RUNNER: Path(runner.__file__),
    "child.py": Path(child.__file__),
    "watchdog.py": Path(watchdog.__file__),
    **{f"script_metrics/{path.name}": path for path in Path(script_metrics.__file__).parent.glob("*.py")},
}
"""Maps the name of each file that a job needs to run a user's own training to the file that it is a copy of."""


def script_of(spec: JobSpec) -> Script:
    """Read the script of a job, and its options by --help if the job allows it."""
    return Script.read(at_home(spec.entry_script or "").resolve(), may_ask=spec.ask_script)


def script_faults(spec: JobSpec) -> list[str]:
    """Return why a job's script cannot run with the parameters that were given; empty if it can."""
    return list(bind(spec, script_of(spec)).faults)


def script_inputs(spec: JobSpec) -> JobInputs:
    """Return the inputs of a job that runs an `entry_script`.

    A job on this machine uses the script and its data where they are. If the launcher uploads files, the script's
    folder is uploaded, and the data reach the job as channels. Raises BadInput with all faults; the script's arguments
    are checked only if no file is missing.
    """
    refuse(missing_files(spec.as_text()))
    script, travels = script_of(spec), spec.runs_on.files_travel
    path, moved, inputs = script.path, dict[str, str](), dict[str, Path | str]()
    for name, channel in SCRIPT_CHANNELS.items():
        text = str(getattr(spec, name) or "")
        if travels and text.startswith(IN_S3):  # the job reads it from S3; it does not pass through this machine
            inputs[channel], moved[name] = in_channel(channel, text)
        elif travels and text and exists(text):
            inputs[channel], moved[name] = in_channel(channel, at_home(text).resolve())
        elif text and exists(text):
            inputs[channel] = at_home(text).absolute()
    place = f"{CHANNELS}/code/{archive.SCRIPT_FOLDER}/{path.name}" if travels else str(path)
    bound = bound_script(spec, script, place=place, moved=moved)
    faults, files, requirements = list(bound.faults), dict[str, Path](), ""
    with collecting(faults):
        is_sent = travels and path.is_file()
        sent = {**archive.project_files(path.parent), path.name: path} if is_sent else {}
        if (listed := sent.get(archive.REQUIREMENTS)) is not None:
            requirements = read_text(listed, LARGEST_SETTINGS)
        files = {f"{archive.SCRIPT_FOLDER}/{name}": each for name, each in sent.items()}
    refuse(faults)
    return JobInputs(
        code=UserCode(
            command=bound.command,
            files={**files, **RUNNER_FILES},
            key=archive.code_key(files) if is_sent else "",
            left_behind=archive.left_behind(path.parent) if travels else (),
            inputs=inputs,
            requirements=tuple(requirements.split("\n")) if requirements else (),
            texts=texts_of(script.files, path.parent),
            described=bound.described,
            training=bound.training,
            parameters={channel: name for name, channel in SCRIPT_CHANNELS.items()},
        )
    )


def planned_inputs(spec: JobSpec) -> JobInputs:
    """Return what a job of a script would run, without its files and data; empty if the script is not here."""
    script = script_of(spec)
    if not script.files:
        return JobInputs()
    bound = bound_script(spec, script, place=str(script.path))
    return JobInputs(code=UserCode(command=bound.command, described=bound.described, training=bound.training))


@dataclass(frozen=True, kw_only=True)
class BoundScript:
    """A script, bound to a job.

    Attributes:
        command: what the job runs.
        described: what a dry run says of it, by heading.
        training: the job with what the script's text says of its training with Hugging Face's Trainer, if it uses that.
        faults: why the script cannot run with the parameters that were given; empty if it can.
    """

    command: Command
    described: Mapping[str, str]
    training: JobSpec | None
    faults: tuple[str, ...]


def bound_script(spec: JobSpec, script: Script, *, place: str, moved: Mapping[str, str] | None = None) -> BoundScript:
    """Bind a script, which is at the path `place` in the job; `moved` has the paths of parameters that name files."""
    binding, name = bind(spec, script, moved), script.path.name
    command = Command(
        words=binding.words,
        script=place,
        recorded=binding.recorded,
        takes_seed=binding.takes_seed,
        takes_batch=binding.takes_batch,
        accumulates=binding.accumulates,
        settings=tuple(sorted(settings_of(spec, [script]))),
        named=tuple(sorted({*spec.metric, *script.named})),
        renamed=dict(SCRIPT_METRICS),
        metric_definitions=spec.metric_definitions,
        logging_steps=binding.logging_steps,
        leaves_model=True,
        usage_hint=f"; use --training_arguments.NAME VALUE to pass an option that `python {name} --help` lists, or add "
        f"{options(ask_script='true')}",
    )
    return BoundScript(
        command=command,
        described=described(binding, spec, script),
        training=training_of(spec, script),
        faults=binding.faults,
    )


def settings_of(spec: JobSpec, scripts: Iterable[Script]) -> set[str]:
    """Return the names that do not count as metrics if the command prints them: its arguments and settings."""
    given = script_metrics.setting_names(spec.training_arguments)
    return {*given, *(name for script in scripts for name in script.settings)}


def texts_of(files: Iterable[Path], root: Path) -> dict[str, Path]:
    """Return source files by the names that they have among the artifacts of the job's run."""
    return {path.relative_to(root).as_posix(): path for path in files if path.is_relative_to(root)}
