"""The code of the user's own training: the folder that has it, what runs there, and what a job needs of both."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from paretune.core import code_errors, watchdog
from paretune.core.reading import LARGEST_SETTINGS, at_home, exists, read_text
from paretune.launchers import archive
from paretune.specification.container import RUNNER
from paretune.specification.inputs import CHANNELS, IN_S3, SCRIPT_CHANNELS, in_channel
from paretune.specification.user_code import CodeRequest
from paretune.user_code import child, model_files, runner, script_metrics
from paretune.user_code.binding import Bound, bind
from paretune.user_code.script import Script

RUNNER_FILES = {
    RUNNER: Path(runner.__file__),
    "child.py": Path(child.__file__),
    "code_errors.py": Path(code_errors.__file__),
    "model_files.py": Path(model_files.__file__),
    "watchdog.py": Path(watchdog.__file__),
    **{f"script_metrics/{path.name}": path for path in Path(script_metrics.__file__).parent.glob("*.py")},
}
"""Maps the name of each file that a job needs to run a user's own training to the file that it is a copy of."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """The code of a job's `entry_script`: a project with one entry point, which is the script.

    Attributes:
        root: the folder that has its files; of a script in a package, the folder that has the package.
        script: the Python script that runs; None if the entry point of a project runs another command.
        folder: where its files are in a job to which they travel.
    """

    root: Path
    script: Script | None
    folder: str = archive.SCRIPT_FOLDER

    @classmethod
    def of(cls, request: CodeRequest) -> "Code":
        """Read the code of a job."""
        script = Script.of(request.source)
        return cls(root=Path(child.module_of(str(script.path))[0]), script=script)

    def bind(self, request: CodeRequest, home: Path) -> Bound:
        """Return what a job runs and reads; `home` gets the files on servers that its command reads."""
        assert self.script is not None  # only a project may have none
        inputs, moved = _channels(request)
        path = self.script.path
        name = path.relative_to(self.root).as_posix()
        place = f"{CHANNELS}/code/{self.folder}/{name}" if request.files_travel else str(path)
        return replace(bind(request, self.script, place=place, moved=moved), inputs=inputs)

    def files(self, *, travels: bool) -> dict[str, Path]:
        """Return the files that the job gets, by name below `root`; none for a script that runs where it is."""
        path = self.root if self.script is None else self.script.path
        if not (travels and path.is_file()):
            return {}
        return {**archive.project_files(self.root), path.relative_to(self.root).as_posix(): path}

    def linked(self, files: Mapping[str, Path]) -> dict[str, Path]:
        """Return the files and folders that a job on this machine finds beside `files`, and beside their folder."""
        return {}

    def requirements(self, files: Mapping[str, Path], *, travels: bool) -> tuple[tuple[str, ...], str]:
        """Return lines that pip installs in the job, and the folder that their paths are relative to."""
        listed = files.get(archive.REQUIREMENTS)
        return () if listed is None else tuple(read_text(listed, LARGEST_SETTINGS).split("\n")), "."

    def key(self, files: Mapping[str, Path]) -> str:
        """Return a digest that is the same for jobs that run the same code; "" without files."""
        return key_of({f"{self.folder}/{name}": path for name, path in files.items()}) if files else ""

    def texts(self, files: Mapping[str, Path]) -> dict[str, Path]:
        """Return the source files that the job's run keeps, by name."""
        read = () if self.script is None else self.script.files
        return {path.relative_to(self.root).as_posix(): path for path in read if path.is_relative_to(self.root)}


def key_of(files: Mapping[str, Path]) -> str:
    """Return a digest that is the same for jobs that run the same code; results of a run there do not count."""
    return archive.code_key({name: path for name, path in files.items() if not script_metrics.is_log_file(name)})


def _channels(request: CodeRequest) -> tuple[dict[str, Path | str], dict[str, str]]:
    """Return the data of a script by channel, and by parameter the paths in the job of those that travel."""
    moved, inputs = dict[str, str](), dict[str, Path | str]()
    for name, channel in SCRIPT_CHANNELS.items():
        text = request.files[name]
        if request.files_travel and text.startswith(IN_S3):  # the job reads it from S3; it does not pass through here
            inputs[channel], moved[name] = in_channel(channel, text)
        elif request.files_travel and text and exists(text):
            inputs[channel], moved[name] = in_channel(channel, at_home(text).resolve())
        elif text and exists(text):
            inputs[channel] = at_home(text).absolute()
    return inputs, moved
