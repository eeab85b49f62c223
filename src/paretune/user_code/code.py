"""The user's own training: the folder of its code, what runs there, and what a job needs of both.

A script is a project with one entry point: `code_inputs` binds either to a job, and returns the command that runs, the
files that travel, and the data that the command reads.
"""

import posixpath
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paretune.core import code_errors, watchdog
from paretune.core.errors import BadInput, collecting, did_you_mean, refuse
from paretune.core.reading import LARGEST_SETTINGS, at_home, exists, is_file, read_text
from paretune.core.shell import split_words
from paretune.launchers import archive
from paretune.specification.container import RUNNER, Command, JobInputs, UserCode
from paretune.specification.inputs import CHANNELS, IN_S3, SCRIPT_CHANNELS, in_channel, missing_files
from paretune.specification.job import JobSpec
from paretune.user_code import child, model_files, runner, script_metrics
from paretune.user_code.binding import Bound, bind, is_expected
from paretune.user_code.script import Script
from paretune.user_code.trainer_script import training_of

RUNNER_FILES = {
    RUNNER: Path(runner.__file__),
    "child.py": Path(child.__file__),
    "code_errors.py": Path(code_errors.__file__),
    "model_files.py": Path(model_files.__file__),
    "watchdog.py": Path(watchdog.__file__),
    **{f"script_metrics/{path.name}": path for path in Path(script_metrics.__file__).parent.glob("*.py")},
}
"""Maps the name of each file that a job needs to run a user's own training to the file that it is a copy of."""


def script_of(spec: JobSpec) -> Script:
    """Read the script of a job, and its options by --help if the job allows it."""
    command = next(iter(split_words(spec.script_words)), "")
    return Script.read(at_home(spec.entry_script or "").resolve(), may_ask=spec.ask_script, command=command)


def script_faults(spec: JobSpec) -> list[str]:
    """Return why a job's script cannot run with the parameters that were given; empty if it can."""
    return list(bind(spec, script_of(spec)).faults)


def with_own_options(values: Mapping[str, Any], ours: Collection[str], *, listed_by: str) -> dict[str, Any]:
    """Return the values of a request in which the options of its script are `training_arguments`.

    `ours` has the names of all parameters, which the help of the command `listed_by` lists. Any other name is passed to
    the script if the script's text or --help shows an option of that name, or if `bind` says how the script can get it.
    Raises BadInput for names that are neither, with the nearest of all names, if the script's names are all known.
    """
    others = [name for name in values if name.partition(".")[0] not in ours]
    given, project = (str(values.get(name) or "") for name in ("entry_script", "project"))
    words, entry = split_words(str(values.get("script_words") or "")), str(values.get("entry_point") or "main")
    declared, script = list[str](), None
    if others and project and exists(project):
        from paretune.user_code.project import declared_parameters  # imports MLflow, which takes a second

        declared = list(declared_parameters(project, entry))
        given = str(Path(project) / entry)
    if not (others and (declared or (given.endswith(".py") and is_file(given)))):
        return dict(values)
    path, names = at_home(given).resolve(), declared
    if declared:
        by_name = {name.replace("-", "_"): name for name in declared}
        spelled = {name: by_name.get(name.replace("-", "_")) for name in others}
    else:
        script = Script.read(path, may_ask=str(values.get("ask_script")) == "true", command=next(iter(words), ""))
        spelled = {name: script.argument(name) or name * is_expected(script, name, words) for name in others}
        names = [*script.names, *script.reported.constants]
    own = {name: f"training_arguments.{found}" for name, found in spelled.items() if found}
    faults = [f"{name} is given twice, also as {key}" for name, key in own.items() if key in values]
    for name in others if script is None or script.is_complete else ():
        if name not in own:
            has = f"it has {', '.join(sorted(names))}" if names else "it reads no options"
            meant = did_you_mean(name, [*names, *ours], most=1)
            meant = meant or f"{has}; `paretune {listed_by} --help all` lists all parameters"
            owner = f"entry point {entry}" if script is None else path.name
            faults.append(f"unknown parameter {name}, which {owner} does not have either: {meant}")
    refuse(faults)
    return {own.get(name, name): value for name, value in values.items()}


def training_in_script(spec: JobSpec) -> JobSpec | None:
    """Return a job with what its script says of its training with the Trainer (`training_of`); None if that is unknown.

    This is for jobs that are only estimated; the inputs of others have it as `UserCode.training`.
    """
    with suppress(BadInput):  # its text cannot be read
        return None if spec.entry_script is None else training_of(spec, script_of(spec))
    return None


@dataclass(frozen=True, kw_only=True)
class Code:
    """The code of a job's `entry_script`: a project with one entry point, which is the script.

    Attributes:
        root: the folder that has its files.
        script: the Python script that runs; None if the entry point of a project runs another command.
        folder: where its files are in a job to which they travel.
    """

    root: Path
    script: Script | None
    folder: str = archive.SCRIPT_FOLDER

    def bind(self, spec: JobSpec, home: Path) -> Bound:
        """Return what a job runs and reads; `home` gets the files on servers that its command reads."""
        assert self.script is not None  # only a project may have none
        inputs, moved = _channels(spec)
        path = self.script.path
        place = f"{CHANNELS}/code/{self.folder}/{path.name}" if spec.runs_on.files_travel else str(path)
        return replace(bind(spec, self.script, place=place, moved=moved), inputs=inputs)

    def files(self, *, travels: bool) -> dict[str, Path]:
        """Return the files that the job gets, by name below `root`; none for a script that runs where it is."""
        path = self.root if self.script is None else self.script.path
        return {**archive.project_files(self.root), path.name: path} if travels and path.is_file() else {}

    def linked(self, files: Mapping[str, Path]) -> dict[str, Path]:
        """Return the files and folders that a job on this machine finds beside `files`, and beside their folder."""
        return {}

    def requirements(self, files: Mapping[str, Path], *, travels: bool) -> tuple[tuple[str, ...], str]:
        """Return lines that pip installs in the job, and the folder that their paths are relative to."""
        listed = files.get(archive.REQUIREMENTS)
        return () if listed is None else tuple(read_text(listed, LARGEST_SETTINGS).split("\n")), "."

    def key(self, files: Mapping[str, Path]) -> str:
        """Return a digest that is the same for jobs that run the same code; "" without files."""
        return archive.code_key({f"{self.folder}/{name}": path for name, path in files.items()}) if files else ""

    def texts(self, files: Mapping[str, Path]) -> dict[str, Path]:
        """Return the source files that the job's run keeps, by name."""
        read = () if self.script is None else self.script.files
        return {path.relative_to(self.root).as_posix(): path for path in read if path.is_relative_to(self.root)}


def code_of(spec: JobSpec) -> Code:
    """Read the code of a job. Raises BadInput if there is no such project or entry point."""
    if spec.project is None:
        script = script_of(spec)
        return Code(root=script.path.parent, script=script)
    from paretune.user_code.project import ProjectCode  # imports MLflow, which takes a second

    return ProjectCode.of(spec)


def code_inputs(spec: JobSpec, home: Path, *, prepare: bool = True) -> JobInputs:
    """Return what a job of the user's own training runs, and the files and data that it needs.

    On this machine, a script runs where it is, and a project in a copy of its files, with links to the files that git
    ignores, and with paretune's own Python and packages. If the launcher uploads files, the folder of the code is
    uploaded, the data reach the job as channels, and the packages that the code requires are installed.

    Without `prepare`, return only what a script would run, and nothing for a project or for a script that is not here.
    `home` gets the files on servers that the command of a project reads. Raises BadInput with all faults; arguments are
    checked only if no file is missing.
    """
    if not prepare:
        script = None if spec.entry_script is None else script_of(spec)
        if script is None or not script.files:
            return JobInputs()
        bound, training = bind(spec, script), training_of(spec, script)
        return JobInputs(code=UserCode(command=bound.command, described=bound.described, training=training))
    refuse(missing_files(spec.as_text()))
    code, travels, faults = code_of(spec), spec.runs_on.files_travel, list[str]()
    bound, files, requirements, folder = Bound(command=Command(words=())), dict[str, Path](), tuple[str, ...](), "."
    with collecting(faults):
        bound = code.bind(spec, home)
        faults += bound.faults
    with collecting(faults):
        files = code.files(travels=travels)
    with collecting(faults):
        requirements, folder = code.requirements(files, travels=travels)
    refuse(faults)
    linked = () if travels else code.linked(files).items()
    command, is_project = bound.command, spec.project is not None
    if is_project:
        command = replace(command, folder=code.folder, requirements=requirements, requirements_folder=folder)
    return JobInputs(
        code=UserCode(
            command=command,
            files={**{f"{code.folder}/{name}": path for name, path in files.items()}, **RUNNER_FILES},
            key=code.key(files) if travels else "",
            linked={posixpath.normpath(f"{code.folder}/{name}"): path for name, path in linked},
            inputs=bound.inputs,
            left_behind=archive.left_behind(code.root) if travels else (),
            requirements=requirements,
            texts=code.texts(files),
            described=bound.described,
            training=None if is_project or code.script is None else training_of(spec, code.script),
            parameters={} if is_project else {channel: name for name, channel in SCRIPT_CHANNELS.items()},
        )
    )


def _channels(spec: JobSpec) -> tuple[dict[str, Path | str], dict[str, str]]:
    """Return the data of a script by channel, and by parameter the paths in the job of those that travel."""
    moved, inputs = dict[str, str](), dict[str, Path | str]()
    travels = spec.runs_on.files_travel
    for name, channel in SCRIPT_CHANNELS.items():
        text = str(getattr(spec, name) or "")
        if travels and text.startswith(IN_S3):  # the job reads it from S3; it does not pass through this machine
            inputs[channel], moved[name] = in_channel(channel, text)
        elif travels and text and exists(text):
            inputs[channel], moved[name] = in_channel(channel, at_home(text).resolve())
        elif text and exists(text):
            inputs[channel] = at_home(text).absolute()
    return inputs, moved
