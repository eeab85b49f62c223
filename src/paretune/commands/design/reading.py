"""Reads a design from its file, its table and what was typed."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from paretune.commands.design.file import TABLE, TYPED, DesignDraft, DesignFile, DesignTerms, Level, design_faults
from paretune.commands.design.rows import row_types
from paretune.core.errors import BadInput
from paretune.specification.cluster import SIMULATED
from paretune.specification.parameters import Value, split_list
from paretune.storage.tables import read_table
from paretune.storage.yaml import DESIGN, FileKind, Node
from paretune.studies.definition.file_model import FileReader, beside, each
from paretune.studies.definition.space import FaultPath


def read_design(path: str, overrides: Mapping[str, str]) -> DesignFile:
    """The design of a file, with overrides that win over the file.

    `overrides` maps names to texts; empty texts are ignored. A name is one of `TYPED` or a parameter of a row. For a
    factor, one value ends it, and several values with commas between them replace its levels. A typed parameter that
    varies together with others leaves their group.

    Raises:
        BadInput: all faults at once, each with its line where it has one.
    """
    return DesignFile(**vars(DesignReader(path, overrides).draft()))


class DesignReader(FileReader):
    """Reads one design file; collects its parts and faults."""

    kind: ClassVar[FileKind] = DESIGN
    sections: ClassVar[Mapping[str, str]] = {
        "job": "job: {max_seq_length: 128}",
        "factors": "factors: {instance_count: [1, 2, 4]}",
    }
    entry_example = "{name}: [A, B]"
    terms = DesignTerms
    typed_terms = TYPED
    other_keys = ("design", "exclude")
    parameter_types: ClassVar[Mapping[str, Any]] = row_types()

    def __init__(self, path: str, overrides: Mapping[str, str]) -> None:
        super().__init__(path, overrides)
        self._factors: dict[str, tuple[Level, ...]] = {}
        self._rows: list[dict[str, Value]] = []  # if the design is a table

    def draft(self) -> DesignDraft:
        """The whole design; BadInput with all its faults."""
        self._read()
        if self._job.get("launcher") != SIMULATED:
            self._drop_simulated_only()
        self._settle_factors()
        draft = DesignDraft(job=self._job, factors=self._factors, **{"name": "unnamed", **self._parts})
        self._finish(design_faults(draft, self._broken))
        return draft

    def _read_key(self, key: str, node: Node) -> None:
        if key == "design":
            self._take_design(node)
        elif key == "exclude":
            if not isinstance(node.value, list):
                raise ValueError(
                    f"exclude must be a list of mappings, got {node.described()}: exclude: [{{A: 1, B: 2}}]"
                )
            self._parts["exclude"] = tuple(each(node.value, partial(self._members, ("exclude",))))
        else:
            super()._read_key(key, node)

    def _take_design(self, node: Node) -> None:
        if not isinstance(node.value, dict):
            self._parts["design"] = self._text(("design",), node).strip()
        elif set(node.value) != {TABLE}:
            raise ValueError(f"design must be a word or {{{TABLE}: FILE.csv}}, got {', '.join(node.value)}")
        else:
            path = beside(self._path, self._text(("design", TABLE), node.value[TABLE]))
            self._parts |= {"design": TABLE, "table": path}
            self._rows = self._read_table(path)

    def _read_table(self, path: str) -> list[dict[str, Value]]:
        """The rows of a table whose columns are parameters. ValueError with all its faults."""
        try:
            names, rows = read_table(path, must="table ")
        except BadInput as error:
            raise ValueError(*error.faults) from error
        unknown = [
            f"table {path}: unknown column {name}: {self._parameter_hint(name)}"
            for name in names
            if name not in self.parameter_types
        ]
        if unknown:
            raise ValueError(*unknown)
        if not rows:
            raise ValueError(f"table {path} has no rows: a line of parameters, then a line for each job")

        def cells(line: int, row: Sequence[str]) -> dict[str, Value]:
            if len(row) != len(names):
                raise ValueError(f"table {path}:{line}: it has not as many cells as the {len(names)} columns")
            try:
                return {name: self._parsed(name, text) for name, text in zip(names, row, strict=True) if text}
            except ValueError as error:
                raise ValueError(f"table {path}:{line}: {error}") from None

        return each(rows, lambda item: cells(*item))

    def _read_entry(self, fault_path: FaultPath, node: Node) -> None:
        section, name = fault_path
        if section == "job":
            super()._read_entry(fault_path, node)
        elif not isinstance(node.value, list):
            rule = f"{name} in factors must be a list of its levels, got {node.described()}"
            raise ValueError(f"{rule}: write {name}: [A, B]; one value goes in job")
        else:
            self._factors[name] = tuple(each(node.value, partial(self._level, fault_path)))

    def _level(self, fault_path: FaultPath, node: Node) -> Level:
        name = fault_path[1]
        if name in self.parameter_types:
            return {name: self._value(fault_path, node, is_choice=True)}
        if not isinstance(node.value, dict):
            group = (
                f"levels of {name} would be mappings of parameters that travel together, such as {{instance_count: 2}}"
            )
            raise ValueError(f"unknown factor {name}: {self._parameter_hint(name)}; {group}")
        return self._members(fault_path, node)

    def _members(self, fault_path: FaultPath, node: Node) -> Level:
        """The level that a mapping of parameters to values spells."""
        if not isinstance(node.value, dict):
            raise ValueError(f"{fault_path[-1]} must hold mappings of parameters to values, got {node.described()}")

        def member(item: tuple[str, Node]) -> tuple[str, Value]:
            if item[0] not in self.parameter_types:
                raise ValueError(f"unknown parameter {item[0]} in {fault_path[-1]}: {self._parameter_hint(item[0])}")
            return item[0], self._value((*fault_path, item[0]), item[1], is_choice=True)

        return dict(each(node.value.items(), member))

    def _section_of(self, name: str) -> str:
        return "factors" if name in self._factors else "job"

    def _set_parameter(self, section: str, name: str, text: str) -> None:
        if section == "factors" and "," in text:
            self._factors[name] = tuple({name: value} for value in each(split_list(text), partial(self._parsed, name)))
            return
        super()._set_parameter("job", name, text)
        self._factors.pop(name, None)
        for factor, levels in self._factors.items():
            self._factors[factor] = tuple(
                {member: level[member] for member in level if member != name} for level in levels
            )
        self._rows = [{column: row[column] for column in row if column != name} for row in self._rows]

    def _settle_factors(self) -> None:
        """Turn a table's columns into factors; factors with one level left after overrides move to the job."""
        if self._rows:
            for name in dict.fromkeys(name for row in self._rows for name in row):
                values = dict.fromkeys(row[name] for row in self._rows if name in row)
                self._factors[name] = tuple({name: value} for value in values)
        for factor, levels in list(self._factors.items()):
            distinct = [level for number, level in enumerate(levels) if level not in levels[:number]]
            if self._typed and len(levels) > len(distinct) == 1:
                self._job |= distinct[0]
                del self._factors[factor]
            elif self._typed and len(distinct) < len(levels):
                self._factors[factor] = tuple(distinct)
        if self._rows:
            self._settle_table()

    def _settle_table(self) -> None:
        fixed = {name: levels[0] for name, levels in self._factors.items() if len(levels) == 1}
        for name, level in fixed.items():
            self._job |= level
            del self._factors[name]
        missing = [number for number, row in enumerate(self._rows, start=1) if self._factors.keys() - row.keys()]
        if missing:
            self._refuse(("design",), f"table {self._parts['table']}: row {missing[0]} has empty cells: fill them")
            self._rows = []
        self._parts["rows"] = tuple({name: {name: row[name]} for name in self._factors} for row in self._rows)
