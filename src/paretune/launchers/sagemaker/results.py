"""The results of an ended training job in S3: our training's report, or the output of a foreign project."""

import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from paretune.core.commands import command_line
from paretune.core.errors import LostContact
from paretune.launchers.base import JobState
from paretune.launchers.sagemaker.account import PREFIX
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_transient
from paretune.launchers.sagemaker.s3_download import fault_of_name
from paretune.launchers.sagemaker.staging import Staging
from paretune.specification.container import PROFILE, Event, JobReport, read_event
from paretune.storage.archives import Entry, entries, translated_damage

_LARGEST_RESULTS = 512 * 2**20  # bytes read of one archive; reports and a profile take a hundredth of it
_PROFILE_FILE = re.compile(rf"{PROFILE}/\w[\w.-]{{0,99}}")  # a name that every file system takes
_OUTPUT_FOLDERS = ("output", "data")
"""Prefixes of an uncompressed output's files. AWS documents that they are loose files, and not where below output/."""
_RESULT_FILES = {"report.json", "events.jsonl"}


class OutputArchive:
    """The upload of SageMaker at the end of a training job: /opt/ml/output/data and /opt/ml/model.

    Each is an archive, output.tar.gz and model.tar.gz, or with CompressionType NONE a prefix with one object per file.
    """

    def __init__(self, staging: Staging, job_name: str) -> None:
        self._staging = staging
        self._job_name = job_name
        self._files: Mapping[str, bytes] | None = None

    def files(self) -> Mapping[str, bytes] | None:
        """The report and events of an ended job, read once; None while S3 does not answer. Raises LostContact."""
        if self._files is None:
            try:
                self._files = self._read(_RESULT_FILES.__contains__)
            except AWS_ERRORS as error:
                if is_transient(error):
                    return None
                raise LostContact(
                    f"{explain(error, f'read the results of {self._job_name}')}\nit has ended; sign in again, then "
                    f"`{command_line('sync')}`"
                ) from error
        return self._files

    def profile(self) -> dict[str, bytes]:
        """The files of the job's profile; reads the archive again, as a trace is large. Raises LostContact."""
        try:
            files = self._read(_PROFILE_FILE.fullmatch)
        except AWS_ERRORS as error:
            raise LostContact(explain(error, f"read the profile of {self._job_name}")) from error
        return {name.removeprefix(f"{PROFILE}/"): content for name, content in files.items()}

    def download(self, folder: Path) -> Path | None:
        """Download the archive or its files to a folder; None if there are none. Raises LostContact."""
        path = folder / "output.tar.gz"
        try:
            self._staging.s3.download_file(self._staging.bucket, self._key("output.tar.gz"), str(path))
        except AWS_ERRORS as error:
            if code(error) in {"404", "NoSuchKey"}:
                return self._download_files(folder / "output")
            raise LostContact(explain(error, f"read the results of {self._job_name}")) from error
        return path

    def model_uri(self, *, is_compressed: bool) -> str:
        """S3 URI of model.tar.gz, the archive of /opt/ml/model, or of the prefix with its files."""
        return self._staging.uri(self._key("model.tar.gz" if is_compressed else "model/"))

    def _read(self, is_needed: Callable[[str], object]) -> dict[str, bytes]:
        packed = self._staging.open(self._key("output.tar.gz"))
        if packed is not None:
            return _unpack(packed, is_needed)
        files: dict[str, bytes] = {}
        left = _LARGEST_RESULTS
        for name, (key, size) in self._objects().items():
            if is_needed(name) and size <= left and (body := self._staging.open(key)) is not None:
                files[name] = body.read()
                left -= size
        return files

    def _objects(self) -> dict[str, tuple[str, int]]:
        """Name below /opt/ml/output/data to key and size of an uncompressed output."""
        prefix = self._key("")
        sizes = self._staging.sizes(prefix)
        folders = tuple(f"{prefix}{folder}/" for folder in _OUTPUT_FOLDERS)
        keys = {key: key.removeprefix(prefix).partition("/")[2] for key in sizes if key.startswith(folders)}
        return {name: (key, sizes[key]) for key, name in keys.items() if not fault_of_name(name, ())}

    def _download_files(self, folder: Path) -> Path | None:
        objects = self._objects()
        try:
            for name, (key, _) in objects.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                self._staging.s3.download_file(self._staging.bucket, key, str(folder / name))
        except AWS_ERRORS as error:
            raise LostContact(explain(error, f"read the results of {self._job_name}")) from error
        return folder if objects else None

    def _key(self, name: str) -> str:
        return f"{PREFIX}/jobs/{self._job_name}/output/{name}"


class Results:
    """The results of our training: report.json and events.jsonl. Without a readable report it has failed."""

    is_project = False  # whether the job runs the command of a foreign project

    def __init__(self, archive: OutputArchive) -> None:
        self.archive = archive

    def end_state(self, status: str) -> JobState:
        """The state of an ended job with this TrainingJobStatus; RUNNING while S3 does not answer."""
        files = self.archive.files()
        if files is None:
            return JobState.RUNNING
        return JobState.COMPLETED if JobReport.read_json(files.get("report.json", b"")) else JobState.FAILED

    def report(self) -> JobReport | None:
        """The report of a completed job; None if it leaves none."""
        return JobReport.read_json((self.archive.files() or {})["report.json"])

    def events(self) -> list[Event]:
        """The events in the archive of an ended job."""
        lines = (self.archive.files() or {}).get("events.jsonl", b"").decode(errors="replace").splitlines()
        return [event for event in map(read_event, lines) if event is not None]

    def model_uri(self, *, is_compressed: bool) -> str:
        """S3 URI of the model; "" if it is not known whether there is one."""
        return self.archive.model_uri(is_compressed=is_compressed)


class ProjectResults(Results):
    """A foreign project's command leaves no report: SageMaker's status decides whether it has succeeded."""

    is_project = True

    def end_state(self, status: str) -> JobState:
        """COMPLETED if SageMaker says so."""
        return JobState.COMPLETED if status == "Completed" else JobState.FAILED

    def report(self) -> JobReport | None:
        """None."""
        return None

    def events(self) -> list[Event]:
        """No events: a file of theirs is not ours to believe."""
        return []

    def model_uri(self, *, is_compressed: bool) -> str:
        """Empty, because the command may leave no model."""
        return ""


class ReportingProjectResults(ProjectResults):
    """The command runs as a job with the parameter `project`: its metrics are in a report, if it has any."""

    def end_state(self, status: str) -> JobState:
        """SageMaker's word, once the archive can be read."""
        return JobState.RUNNING if self.archive.files() is None else super().end_state(status)

    def report(self) -> JobReport | None:
        """The metrics that the command left; a report without any if it left none."""
        return JobReport.read_json((self.archive.files() or {}).get("report.json", b"")) or JobReport(metrics={})

    def model_uri(self, *, is_compressed: bool) -> str:
        """S3 URI of what the command wrote to SM_MODEL_DIR."""
        return self.archive.model_uri(is_compressed=is_compressed)


def _unpack(packed: BinaryIO, is_needed: Callable[[str], object]) -> dict[str, bytes]:
    """The needed files, except those too large for memory; none of a damaged archive."""
    files: dict[str, bytes] = {}
    left = _LARGEST_RESULTS
    try:
        with translated_damage(), tarfile.open(fileobj=packed, mode="r|gz", tarinfo=Entry) as archive:
            for entry in entries(archive):
                name = entry.name.removeprefix("./")
                is_small = entry.isfile() and entry.size <= left
                file: Any = archive.extractfile(entry) if is_small and is_needed(name) else None
                if file is not None:
                    files[name] = file.read()
                    left -= len(files[name])
    except tarfile.TarError:
        return {}
    return files
