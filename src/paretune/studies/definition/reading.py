"""From a file and what was typed to the parts of a study or a design: every fault with the line it stands in.

`FileReading` knows what the files of studies and designs have in common; a subclass per kind reads its own keys.
"""

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.untrusted import exists
from paretune.specification.cluster import ONLY_SIMULATED, SIMULATED, Cluster
from paretune.specification.job import INPUT_FILES, PROJECT
from paretune.specification.parameters import Value, parameter_hint, parse
from paretune.storage.yaml import FileKind, Node, read_yaml
from paretune.studies.definition.objectives import nearest
from paretune.studies.definition.space import Fault, FaultPath, plain_kind

_CLUSTER = {item.name for item in fields(Cluster)}
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
LISTED = ("fallback_instance_types", "subnets", "security_group_ids", "lora_target_modules", "size")
"""Parameters of a job that hold several values, separated by commas: a list in a file."""
PATHS = (*INPUT_FILES, "entry_script", "recorded_runs", "budget")
"""Parameters of a job that may be files or folders."""


OF_THE_JOB = ("project", "entry_point", "entry_script", "size")
"""Parameters of a job that may stand beside `job`: what is trained, where that is the user's own."""
_ENTRIES = "project_parameters"


class FileReading:
    """Collects parts and faults of one file; of what was typed, an empty text is none.

    Attributes:
        kind: what the file is.
        sections: its keys that map names to values, `job` first, then where a parameter of a job varies.
        terms: its keys that are one value, and their types.
        typed_terms: those of `terms` that can be typed; the others are parameters of the job when they are typed.
        kinds: parameters that a job may have here, and their types.
        examples: section to how it may look.
    """

    kind: ClassVar[FileKind]
    sections: ClassVar[tuple[str, ...]]
    terms: ClassVar[Mapping[str, Any]]
    typed_terms: ClassVar[Collection[str]]
    kinds: ClassVar[Mapping[str, Any]]
    examples: ClassVar[Mapping[str, str]]

    def __init__(self, path: str, overrides: Mapping[str, str]) -> None:
        self._path = path
        self._typed = {name: text for name, text in overrides.items() if text.strip()}
        self._lines: dict[FaultPath, int] = {}
        self._faults: list[tuple[float, str]] = []  # with their lines
        self._broken: list[FaultPath] = []
        self._parts: dict[str, Any] = {}
        self._job: dict[str, Any] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the file."""
        return ("name", *self.sections, *self.terms, *OF_THE_JOB)

    def _read(self) -> None:
        """Read the file, then take what was typed."""
        document, doubles = read_yaml(self._path, self.kind)
        self._faults += [(line, f"{self._path}:{line}: {text}") for line, text in doubles]
        # What is trained comes first: its entry point says which names may be searched.
        for key, node in sorted(document.items(), key=lambda item: item[0] not in ("job", *OF_THE_JOB)):
            self._lines[(key,)] = node.line
            with self._noting((key,)):
                self._key(key, node)
        self._take_typed()
        if "name" not in {*document, *self._typed}:
            text = f"name is missing: add name: and a few words, under which the {self.kind.word} is found again"
            self._refuse(("name",), text)

    def _finish(self, faults: Iterable[Fault]) -> None:
        """Raise BadInput with everything that is wrong; `faults` are those of the parts together."""
        for fault_path, text in faults:
            self._refuse(fault_path, text)
        if self._faults:
            raise BadInput(list(dict.fromkeys(text for _, text in sorted(self._faults, key=lambda fault: fault[0]))))

    def _refuse(self, fault_path: FaultPath, text: str) -> None:
        """Note a fault with the line of the innermost key that is known; what was typed has none."""
        self._broken.append(fault_path)
        line = next((self._lines[fault_path[:end]] for end in (2, 1) if fault_path[:end] in self._lines), math.inf)
        is_of_file = fault_path[0] in self.terms and fault_path[0] not in self.typed_terms
        if fault_path[-1] in self._typed and (self._is_typed(fault_path[1]) if len(fault_path) > 1 else not is_of_file):
            self._faults.append((0, text))
        else:
            self._faults.append((line, f"{self._path}{f':{line}' if line < math.inf else ''}: {text}"))

    def _is_typed(self, name: str) -> bool:
        """Whether a parameter of the job was typed, and not a term of the same name."""
        return name in self._typed and name not in self.typed_terms

    @contextmanager
    def _noting(self, fault_path: FaultPath) -> Iterator[None]:
        """Note the faults that the block raises as those of this part, and go on after it."""
        try:
            yield
        except ValueError as error:
            for text in error.args:
                self._refuse(fault_path, text)

    def _key(self, key: str, node: Node) -> None:
        if key not in self.keys:
            raise ValueError(f"unknown key {key}: {self._meant(key)}")
        if key in OF_THE_JOB:
            self._lines[("job", key)] = node.line
            if not self._is_typed(key):
                self._entry(("job", key), node)
        elif key in self.sections:
            self._section(key, node)
        elif key not in self._typed or key not in (*self.typed_terms, "name"):
            self._take_term(key, self._text((key,), node))

    def _section(self, key: str, node: Node) -> None:
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            raise ValueError(f"{key} must be a mapping of names to values, got {got}: {self.examples[key]}")
        for name, entry in node.value.items():
            self._lines[(key, name)] = entry.line
            if key != "job" or not self._is_typed(name):
                with self._noting((key, name)):
                    full = self._full_name(key, name)
                    self._lines[(key, full)] = entry.line
                    self._entry((key, full), entry)

    def _full_name(self, section: str, name: str) -> str:
        """`project_parameters.NAME` for the name of a parameter of a project's entry point, where one varies.

        Raises:
            ValueError: the entry point declares parameters, and none of this name.
        """
        project = str(self._typed.get("project") or self._job.get("project") or "")
        is_other = name in _CLUSTER or name.startswith(f"{_ENTRIES}.")
        if section != self.sections[1] or not project or is_other:
            return name
        from paretune.projects.fetching import declared  # only now: it imports MLflow

        entry_point = str(self._typed.get("entry_point") or self._job.get("entry_point") or "main")
        try:
            known = declared(project, entry_point)
        except BadInput as error:
            raise ValueError(*error.faults) from error
        if known and name not in known:
            text = f"unknown parameter {name}: entry point {entry_point} of {project} declares {', '.join(known)}"
            raise ValueError(f"{text}; of the job, {section} may hold those of the cluster, such as instance_type")
        return f"{_ENTRIES}.{name}"

    def _entry(self, fault_path: FaultPath, node: Node) -> None:
        """Take one entry of a section; here of `job`."""
        name = fault_path[1]
        if name not in self.kinds:
            raise ValueError(f"unknown parameter {name} in {fault_path[0]}: {self._meant(name, of_job=True)}")
        if (value := self._value(fault_path, node)) != "":  # an empty list
            self._job[name] = value

    def _take_term(self, key: str, text: str) -> None:
        self._parts[key] = parse(key, text.strip(), str if key == "name" else self.terms[key])

    def _take_typed(self) -> None:
        """Take what was typed: it wins over the file."""
        for name, text in self._typed.items():
            of_job = name in self.kinds and name not in self.typed_terms
            section = self._section_of(name)
            with self._noting((section, name) if of_job else (name,)):
                if name in self.typed_terms or name == "name":
                    self._take_term(name, text)
                elif of_job:
                    self._take_parameter(section, name, text)
                elif name in self.keys:
                    raise ValueError(f"{name} is set in {self._path} and cannot be typed")
                else:
                    known = dict.fromkeys((self.kind.word, "name", *self.typed_terms, *self.kinds))
                    raise ValueError(f"unknown parameter {name}: {parameter_hint(name, known, self.kind.word)}")
        if "launcher" in self._typed and self._job.get("launcher") != SIMULATED:  # the file's rehearsal is over
            for name in set(ONLY_SIMULATED) - self._typed.keys():
                self._job.pop(name, None)

    def _section_of(self, name: str) -> str:
        """Where a parameter belongs that was typed: `job`, or where it varies."""
        return "job"

    def _take_parameter(self, section: str, name: str, text: str) -> None:
        """Take a parameter of a job that was typed."""
        self._job[name] = self._parsed(name, text)

    def _text(self, fault_path: FaultPath, node: Node, what: str = "") -> str:
        name = what or fault_path[-1]
        if not isinstance(node.value, str):
            raise ValueError(f"{name} must be one value, got {node.described()}")
        if node.is_nothing:
            has_default = fault_path[0] == "job" or fault_path[-1] in self.terms
            rest = ", or take the line out for the default" if has_default else ""
            raise ValueError(f"{name} has no value: give one{rest}")
        return node.value

    def _value(self, fault_path: FaultPath, node: Node, is_choice: bool = False) -> Value:
        """The value of a parameter of a job; empty for an empty list."""
        name = fault_path[-1]
        if isinstance(node.value, list) and name in LISTED:
            return ",".join(each(node.value, partial(self._text, fault_path)))
        if isinstance(node.value, dict) and plain_kind(self.kinds[name]) is dict:
            return self._parsed(name, json.dumps(node.as_json(), sort_keys=True))
        if isinstance(node.value, str):
            value = self._parsed(name, self._text(fault_path, node))
            return beside(self._path, value) if name in PATHS and isinstance(value, str) else value
        where = f"{self.sections[1]} as {self.examples[f'{self.sections[1]} of'].format(name=name)}"
        several = "" if is_choice else f"; to try several, put them under {where}"
        raise ValueError(f"{name} must be one value, got {node.described()}{several}")

    def _parsed(self, name: str, text: str) -> Value:
        """The value that a text means: a number, a truth value, or the text where it means anything else."""
        value = parse(name, text, self.kinds[name])
        return value if isinstance(value, str | int | float) else text.strip()

    def _meant(self, key: str, of_job: bool = False) -> str:
        """What a wrong key was probably meant to be, or where it belongs."""
        if of_job:
            if key in self.keys:
                return f"it is a key of the {self.kind.word}, move it to the left; a job has none of this name"
            return parameter_hint(key, self.kinds)
        if key in self.kinds:
            meant = did_you_mean(key, self.terms, lead="; or ", most=1)
            return f"it is a parameter of the job, put it under {self.sections[0]} or {self.sections[1]}{meant}"
        return nearest(key, self.keys)


def beside(file: str, text: str) -> str:
    """The path that a file of a study or a design means by `text`, which is no path where nothing has that name.

    It counts from the current folder; what is not there, from the folder of the file, and from the project that it is
    part of: the next folder above that has an MLproject.
    """
    if os.path.isabs(text) or exists(text):
        return text
    folder = Path(file).resolve().parent
    project = next((above for above in (folder, *folder.parents) if (above / PROJECT).is_file()), folder)
    return next((str(base / text) for base in (folder, project) if os.path.exists(base / text)), text)


def each(items: Iterable[_Item], read: Callable[[_Item], _Found]) -> list[_Found]:
    """What `read` makes of every item; their faults are raised together, one argument of the ValueError each."""
    found: list[_Found] = []
    faults: list[str] = []
    for item in items:
        try:
            found.append(read(item))
        except ValueError as error:
            faults += error.args
    if faults:
        raise ValueError(*faults)
    return found
