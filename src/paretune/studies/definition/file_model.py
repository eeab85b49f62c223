"""The model of a file: which keys it may hold, how each is read, and which rules its parts must keep together.

A kind of file (study, design) is a subclass of `FileReader`. Its keys with one value are the fields
of a dataclass, each declared by `specification.parameters.parameter` with type, range, choices and help. Its sections
map names to values. `check` applies the rules for single parts first, then each `Rule` between parts that have no fault
yet, so that one mistake is reported once. Every fault carries its line in the file.
"""

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from paretune.core.errors import BadInput, did_you_mean
from paretune.core.own_script import read_own_script
from paretune.core.untrusted import at_home
from paretune.specification.cluster import ONLY_SIMULATED, SIMULATED
from paretune.specification.inputs import PATHS
from paretune.specification.parameters import Value, annotations, parameter_hint, parse, range_faults, spell
from paretune.specification.placement import Placement
from paretune.specification.program import PROJECT
from paretune.storage.address import address_fault
from paretune.storage.shipped import find_file, find_path
from paretune.storage.yaml import FileKind, Node, read_yaml
from paretune.studies.definition.objectives import nearest
from paretune.studies.definition.space import Fault, FaultPath, is_inside, plain_kind

_CLUSTER = {field.name for field in fields(Placement)}
_LONGEST_NAME = 80  # characters
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Draft = TypeVar("_Draft")
LISTED = ("fallback_instance_types", "subnets", "security_group_ids", "lora_target_modules", "size")
"""Parameters of a job that hold several values, separated by commas: a list in a file."""
TRAINING_KEYS = ("project", "entry_point", "entry_script", "size", "metric_definitions", "argument_names")
"""Parameters of a job that may stand beside `job`: the user's own training."""
_ENTRY_PARAMETERS = "project_parameters"


@dataclass(frozen=True)
class Rule(Generic[_Draft]):
    """A rule between parts of a file."""

    faults: Callable[[_Draft], Iterable[Fault]]  # yields what the draft violates
    needs: tuple[str, ...] = ()  # parts that must have no fault: keys such as `job`, or `job.task` for an entry

    def applies(self, broken: Collection[FaultPath]) -> bool:
        """Whether all parts that it needs are intact."""
        needs = [tuple(key.split(".")) for key in self.needs]
        return not any(path[: len(need)] == need[: len(path)] for path in broken for need in needs)


def check(
    draft: _Draft,
    part_faults: Callable[[_Draft], Iterable[Fault]],
    rules: Sequence[Rule[_Draft]],
    broken: Iterable[FaultPath] = (),
) -> list[Fault]:
    """All faults of a draft. Parts that are `broken`, because they could not be read, have their fault already."""
    paths = set(broken)
    faults = [fault for fault in part_faults(draft) if fault[0] not in paths]
    paths |= {fault_path for fault_path, _ in faults}
    return faults + [fault for rule in rules if rule.applies(paths) for fault in rule.faults(draft)]


def term_faults(draft: Any, terms: type) -> Iterator[Fault]:
    """Faults of the name and of the keys with one value, each by itself."""
    if not draft.name.isprintable() or not draft.name.strip() or len(draft.name) > _LONGEST_NAME:
        yield ("name",), f"name must be one line of 1 to {_LONGEST_NAME} characters, got {draft.name[:90]!r}"
    for field in fields(terms):
        if (value := getattr(draft, field.name)) is not None:
            yield from (((field.name,), text) for text in range_faults(field, value))
    storage = getattr(draft, "storage", None)
    if storage is not None and (fault := address_fault(storage)):
        yield ("storage",), fault


def value_faults(field: "Field[Any]", annotation: Any, value: Any) -> list[str]:
    """Faults of one value of a job's parameter, by its declaration; an empty value is the default."""
    text = spell(value)
    if not text.strip():
        return []
    try:
        return range_faults(field, parse(field.name, text, annotation, field.metadata["example"]))
    except ValueError as error:
        return [str(error)]


class FileReader:
    """Reads one file and the overrides that were typed; collects parts and faults. An empty override is ignored.

    A mapping with the content of a file is read like the file.
    """

    kind: ClassVar[FileKind]  # the kind of file, for messages
    sections: ClassVar[Mapping[str, str]]
    """Keys that map names to values, with an example of each. `job` comes first, then the section where a parameter of
    the job varies."""
    entry_example: ClassVar[str]  # how an entry of that second section looks; `{name}` stands for the parameter
    terms: ClassVar[type]  # dataclass that declares the keys with one value
    typed_terms: ClassVar[Collection[str]]  # fields of `terms` that can be typed; other typed names are the job's
    other_keys: ClassVar[tuple[str, ...]] = ()  # keys that a subclass reads in `_read_key`
    parameter_types: ClassVar[Mapping[str, Any]]  # the parameters of a job that the file may set, with their types

    def __init__(self, path: str | Mapping[str, Any], overrides: Mapping[str, str]) -> None:
        self._content = None if isinstance(path, str) else _as_text(path)
        self._path = find_file(path) if isinstance(path, str) else f"the {self.kind.word}"
        self._typed = {name: text for name, text in overrides.items() if text.strip()}
        self._lines: dict[FaultPath, int] = {}
        self._faults: list[tuple[float, str]] = []  # with their lines
        self._broken: list[FaultPath] = []
        self._parts: dict[str, Any] = {}
        self._job: dict[str, Any] = {}
        self._term_types = {field.name: annotations(self.terms)[field.name] for field in fields(self.terms)}
        self.keys = ("name", *self.sections, *self._term_types, *TRAINING_KEYS, *self.other_keys)
        self._varying = list(self.sections)[1]

    def _read(self) -> None:
        document, doubles = read_yaml(self._path, self.kind, self._content)
        self._faults += [(line, f"{self._path}:{line}: {text}") for line, text in doubles]
        # The training comes first: its entry point declares which names may vary.
        for key, node in sorted(document.items(), key=lambda item: item[0] not in ("job", *TRAINING_KEYS)):
            self._lines[(key,)] = node.line
            with self._collecting((key,)):
                self._read_key(key, node)
        self._apply_typed()
        if "name" not in {*document, *self._typed}:
            text = f"name is missing: add name: and a few words, under which the {self.kind.word} is found again"
            self._refuse(("name",), text)

    def _finish(self, faults: Iterable[Fault]) -> None:
        """Raise BadInput with all faults that were collected, and with `faults`, in the order of their lines."""
        for fault_path, text in faults:
            self._refuse(fault_path, text)
        if self._faults:
            raise BadInput(list(dict.fromkeys(text for _, text in sorted(self._faults, key=lambda fault: fault[0]))))

    def _refuse(self, fault_path: FaultPath, text: str) -> None:
        """Note a fault with the line of the innermost key that the file has; an override has no line."""
        self._broken.append(fault_path)
        line = next((self._lines[fault_path[:end]] for end in (2, 1) if fault_path[:end] in self._lines), math.inf)
        is_file_only = fault_path[0] in self._term_types and fault_path[0] not in self.typed_terms
        is_typed = self._is_typed(fault_path[1]) if len(fault_path) > 1 else not is_file_only
        if fault_path[-1] in self._typed and is_typed:
            self._faults.append((0, text))
        else:
            has_line = line < math.inf and self._content is None
            self._faults.append((line, f"{self._path}{f':{line}' if has_line else ''}: {text}"))

    def _is_typed(self, name: str) -> bool:
        """Whether this parameter of the job was typed; a key of the file may have the same name."""
        return name in self._typed and name not in self.typed_terms

    @contextmanager
    def _collecting(self, fault_path: FaultPath) -> Iterator[None]:
        """Note the faults that the block raises as those of this part, and continue after it."""
        try:
            yield
        except ValueError as error:
            for text in error.args:
                self._refuse(fault_path, text)

    def _read_key(self, key: str, node: Node) -> None:
        if key not in self.keys:
            raise ValueError(f"unknown key {key}: {self._key_hint(key)}")
        if key in TRAINING_KEYS:
            self._lines[("job", key)] = node.line
            if not self._is_typed(key):
                self._read_entry(("job", key), node)
        elif key in self.sections:
            self._read_section(key, node)
        elif key not in self._typed or key not in (*self.typed_terms, "name"):
            text = self._text((key,), node)
            self._set_term(key, beside(self._path, text) if key in PATHS else text)

    def _read_section(self, key: str, node: Node) -> None:
        if not isinstance(node.value, dict):
            got = "nothing" if node.is_nothing else node.described()
            raise ValueError(f"{key} must be a mapping of names to values, got {got}: {self.sections[key]}")
        if key not in ("job", self._varying):
            self._parts[key] = {}
        for name, entry in node.value.items():
            self._lines[(key, name)] = entry.line
            if key != "job" or not self._is_typed(name):
                with self._collecting((key, name)):
                    full_name = self._full_name(key, name)
                    self._lines[(key, full_name)] = entry.line
                    self._read_entry((key, full_name), entry)

    def _full_name(self, section: str, name: str) -> str:
        """The name, or that in the mapping for a varying parameter of a project's entry point or of a script.

        Raises:
            ValueError: the entry point or the script declares parameters, and none of this name.
        """
        script = str(self._typed.get("entry_script") or self._job.get("entry_script") or "")
        if section == self._varying and script and name not in self.parameter_types and not is_inside(name):
            return self._argument_name(script, name)
        project = str(self._typed.get("project") or self._job.get("project") or "")
        is_of_job = name in _CLUSTER or name.startswith(f"{_ENTRY_PARAMETERS}.")
        if section != self._varying or not project or is_of_job:
            return name
        from paretune.projects.project import declared_parameters  # imports MLflow, which takes a second

        entry_point = str(self._typed.get("entry_point") or self._job.get("entry_point") or "main")
        try:
            names = declared_parameters(project, entry_point)
        except BadInput as error:
            raise ValueError(*error.faults) from error
        if names and name not in names:
            text = f"unknown parameter {name}: entry point {entry_point} of {project} declares {', '.join(names)}"
            raise ValueError(f"{text}; of the job, {section} may hold those of the cluster, such as instance_type")
        return f"{_ENTRY_PARAMETERS}.{name}"

    def _argument_name(self, script: str, name: str) -> str:
        """The name in `training_arguments` of a varying argument of a script, as the script spells it.

        Raises:
            ValueError: the script declares its arguments, and none of this name.
        """
        declared = read_own_script(at_home(script))
        if (argument := declared.argument(name)) or not declared.is_complete:
            return f"training_arguments.{argument or name}"
        raise ValueError(
            f"unknown parameter {name}: {Path(script).name} has the arguments {', '.join(declared.arguments)}"
        )

    def _read_entry(self, fault_path: FaultPath, node: Node) -> None:
        """Take one entry of a section. This method reads `job`; subclasses read their own sections."""
        name = fault_path[1]
        if name not in self.parameter_types:
            raise ValueError(f"unknown parameter {name} in {fault_path[0]}: {self._parameter_hint(name)}")
        if (value := self._value(fault_path, node)) != "":  # an empty list
            self._job[name] = value

    def _set_term(self, key: str, text: str) -> None:
        self._parts[key] = parse(key, text.strip(), str if key == "name" else self._term_types[key])

    def _apply_typed(self) -> None:
        for name, text in self._typed.items():
            is_of_job = name in self.parameter_types and name not in self.typed_terms
            section = self._section_of(name)
            with self._collecting((section, name) if is_of_job else (name,)):
                if name in self.typed_terms or name == "name":
                    self._set_term(name, text)
                elif is_of_job:
                    self._set_parameter(section, name, text)
                elif name in self.keys:
                    raise ValueError(f"{name} is set in {self._path} and cannot be typed")
                else:
                    names = dict.fromkeys((self.kind.word, "name", *self.typed_terms, *self.parameter_types))
                    raise ValueError(f"unknown parameter {name}: {parameter_hint(name, names, self.kind.word)}")
        if "launcher" in self._typed and self._job.get("launcher") != SIMULATED:
            self._drop_simulated_only()

    def _drop_simulated_only(self) -> None:
        for name in set(ONLY_SIMULATED) - self._typed.keys():
            self._job.pop(name, None)

    def _section_of(self, name: str) -> str:
        return "job"

    def _set_parameter(self, section: str, name: str, text: str) -> None:
        self._job[name] = self._parsed(name, text)

    def _text(self, fault_path: FaultPath, node: Node, label: str = "") -> str:
        """The text of a scalar; messages call it `label`, by default by its key."""
        name = label or fault_path[-1]
        if not isinstance(node.value, str):
            raise ValueError(f"{name} must be one value, got {node.described()}")
        if node.is_nothing:
            has_default = fault_path[0] == "job" or fault_path[-1] in self._term_types
            rest = ", or take the line out for the default" if has_default else ""
            raise ValueError(f"{name} has no value: give one{rest}")
        return node.value

    def _value(self, fault_path: FaultPath, node: Node, is_choice: bool = False) -> Value:
        """The value of a job's parameter; an empty text for an empty list."""
        name = fault_path[-1]
        if isinstance(node.value, list) and name in LISTED:
            return ",".join(each(node.value, partial(self._text, fault_path)))
        if isinstance(node.value, list) and name == "metric_definitions":
            return json.dumps(node.as_json())
        if isinstance(node.value, dict) and plain_kind(self.parameter_types[name]) is dict:
            return self._parsed(name, json.dumps(node.as_json(), sort_keys=True))
        if isinstance(node.value, str):
            value = self._parsed(name, self._text(fault_path, node))
            return beside(self._path, value) if name in PATHS and isinstance(value, str) else value
        several = f"; to try several, put them under {self._varying} as {self.entry_example.format(name=name)}"
        raise ValueError(f"{name} must be one value, got {node.described()}{'' if is_choice else several}")

    def _parsed(self, name: str, text: str) -> Value:
        """The number or truth value that the text spells for this parameter, else the text."""
        value = parse(name, text, self.parameter_types[name])
        return value if isinstance(value, str | int | float) else text.strip()

    def _key_hint(self, key: str) -> str:
        if key in self.parameter_types:
            similar = did_you_mean(key, self._term_types, lead="; or ", most=1)
            return f"it is a parameter of the job, put it under job or {self._varying}{similar}"
        return nearest(key, self.keys)

    def _parameter_hint(self, name: str) -> str:
        if name in self.keys:
            return f"it is a key of the {self.kind.word}, move it to the left; a job has none of this name"
        return parameter_hint(name, self.parameter_types)


def _as_text(content: Mapping[str, Any]) -> str:
    """The content of a file as JSON, which is YAML, one key per line; paths as texts, numbers of NumPy as plain ones.

    Raises:
        BadInput: a value is none of these.
    """

    def plain(value: Any) -> Any:
        return value.item() if hasattr(value, "item") else os.fspath(value)

    try:
        return "".join(f"{json.dumps(name)}: {json.dumps(value, default=plain)}\n" for name, value in content.items())
    except (TypeError, ValueError) as error:
        rule = "must hold texts, numbers, true, false, lists and mappings only"
        raise BadInput([f"a study or design as a dict {rule}: {error}"]) from error


def beside(file: str, text: str) -> str:
    """The path that `text` in a study or design file means; `text` itself if nothing has that name.

    A path counts from the current folder, then from the folder of the file, then from the project around it (the next
    folder above with an MLproject), then from the files that come with paretune.
    """
    folder = Path(file).resolve().parent
    project = next((above for above in (folder, *folder.parents) if (above / PROJECT).is_file()), folder)
    return find_path(text, folder, project)


def each(items: Iterable[_Item], read: Callable[[_Item], _Result]) -> list[_Result]:
    """The results of `read` for all items. One ValueError holds the faults of all of them, one argument each."""
    results: list[_Result] = []
    faults: list[str] = []
    for item in items:
        try:
            results.append(read(item))
        except ValueError as error:
            faults += error.args
    if faults:
        raise ValueError(*faults)
    return results
