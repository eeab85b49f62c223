"""Reads from a script's text what its training with Hugging Face's Trainer computes, so that it can be estimated.

    training_in(text, requirements, given) -> ScriptTraining | None      what a text says
    training_of(request, script) -> ScriptTraining | None                what the script of a job says

The script is not run. A value that its text does not show keeps the Trainer's default.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SCRIPT, read_text
from paretune.specification.program import TRAINER, Program
from paretune.specification.user_code import MODEL_FOLDER, CodeRequest, ScriptTraining
from paretune.user_code.script import Script

_LIBRARIES = ("transformers", "trl", "setfit", "sentence_transformers")
_TRAINER = re.compile(r"\w*Trainer")
_ARGUMENTS = re.compile(r"\w*TrainingArguments|\w+Config")  # TRL's classes end in Config, as in SFTConfig
_VERSION = re.compile(r"^\s*transformers(?:\[[^\]]*\])?\s*(?:==|~=)\s*(\d+)\.(\d+)", re.MULTILINE)
_CHECKED = re.compile(r"check_min_version\(\s*[\"'](\d+)\.(\d+)")
_FORMAT = ("dtype", "torch_dtype")  # arguments of from_pretrained, since transformers 4.56 and before


def training_in(text: str, requirements: str = "", given: Mapping[str, Any] | None = None) -> ScriptTraining | None:
    """Return what the text of a script says of its training; None if it does not use the Trainer.

    requirements: the text of its requirements.txt.
    given: values of its command-line options, which replace the defaults that the text shows.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not any(map(_imports_trainer, nodes)):
        return None
    values = _Values(nodes, dict(given or {}))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    arguments = dict[str, Any]()
    for call in calls:
        if (
            (name := _name(call.func))
            and _ARGUMENTS.fullmatch(name)
            and name not in ("LoraConfig", "BitsAndBytesConfig")
        ):
            found = {item.arg: values.of(item.value) for item in call.keywords if item.arg}
            arguments |= {key: value for key, value in found.items() if value is not None}
    gets_plan = bool(re.search(r"\b(?:HfArgumentParser|TrlParser)\b", text))
    passes_all = any(
        item.arg is None for call in calls if _ARGUMENTS.fullmatch(_name(call.func)) for item in call.keywords
    )
    if gets_plan or passes_all:  # such a script has an option for each TrainingArgument, without naming it
        arguments |= {name: value for name, value in (given or {}).items() if name not in arguments}
    loads = [call for call in calls if _name(call.func) == "from_pretrained"]
    models = [values.of(call.args[0]) for call in loads if call.args and "Model" in ast.unparse(call.func)]
    ranks = [
        values.of(item.value)
        for call in calls
        if _name(call.func) == "LoraConfig"
        for item in call.keywords
        if (item.arg == "r")
    ]
    adapts = bool(re.search(r"\b(?:LoraConfig|get_peft_config|get_peft_model)\b", text))
    packs = bool(re.search(r"load_in_4bit\s*=\s*True", text))
    lengths = [
        values.of(item.value)
        for call in calls
        for item in call.keywords
        if item.arg in ("max_length", "max_seq_length") and "generate" not in _name(call.func)
    ]
    is_decoder = re.search(r"\bAutoModelForCausalLM\b|\bSFTTrainer\b", text)
    is_tagger = re.search(r"\bAutoModelForTokenClassification\b", text)
    return ScriptTraining(
        program=_program(text, requirements),
        model=next((name for name in models if isinstance(name, str)), None),
        task="causal-lm" if is_decoder else "token-classification" if is_tagger else "classification",
        fine_tuning="qlora" if packs else "lora" if adapts else "full",
        lora_rank=next((rank for rank in ranks if isinstance(rank, int)), None),
        max_seq_length=next((length for length in lengths if isinstance(length, int)), None),
        loads_bf16=any(_is_bf16(item.value, values) for item in _formats(calls)),
        gets_plan=gets_plan,
        arguments=arguments,
    )


def _formats(calls: list[ast.Call]) -> Iterator[ast.keyword]:
    """Yield the arguments that name the format in which models are loaded, also those that TRL's classes pass on."""
    for call in calls:
        is_load = _name(call.func) == "from_pretrained" and "Model" in ast.unparse(call.func)
        yield from (item for item in call.keywords if is_load and item.arg in _FORMAT)
        for item in call.keywords:
            if item.arg == "model_init_kwargs" and isinstance(item.value, ast.Dict):
                pairs = zip(item.value.keys, item.value.values, strict=True)
                named = ((key.value, value) for key, value in pairs if isinstance(key, ast.Constant))
                yield from (ast.keyword(str(name), value) for name, value in named if name in _FORMAT)


def _is_bf16(node: ast.expr, values: "_Values") -> bool:
    return str(values.of(node) or ast.unparse(node)).rpartition(".")[2] in ("bfloat16", "bf16")


def _imports_trainer(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _LIBRARIES:
        return any(_TRAINER.fullmatch(alias.name) for alias in node.names)
    is_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_attribute and node.value.id in _LIBRARIES and bool(_TRAINER.fullmatch(node.attr))  # type: ignore[attr-defined]


def _program(text: str, requirements: str) -> str:
    found = _VERSION.search(requirements) or _CHECKED.search(text)
    return Program.read(f"{TRAINER}-{found[1]}.{found[2]}" if found else TRAINER).name


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


class _Values:
    """Values of expressions, as far as a script's text shows them."""

    def __init__(self, nodes: list[ast.AST], given: Mapping[str, Any]) -> None:
        self._defaults: dict[str, ast.expr] = dict(_defaults(nodes))
        self._constants = {
            target.id: node.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._given = {name.replace("-", "_"): value for name, value in given.items()}

    def of(self, node: ast.AST) -> Any:
        """Return the value of an expression, or None if it is unknown."""
        if isinstance(node, ast.Constant):
            return node.value
        if "SM_MODEL_DIR" in (text := ast.unparse(node)):
            return MODEL_FOLDER
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.of(node.operand)
            return -value if isinstance(value, int | float) else None
        if isinstance(node, ast.Call) and _name(node.func) in ("int", "float", "bool", "str") and node.args:
            return self.of(node.args[0])
        if isinstance(node, ast.Name) and node.id in self._constants:
            return self._constants[node.id].value
        if isinstance(node, ast.Attribute | ast.Name) and text.count(".") < 2:
            name = _name(node)
            if name in self._given:
                return self._given[name]
            default = self._defaults.get(name)
            return None if default is None else self.of(default)
        return None


def _defaults(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the name and the default of each option that argparse declares."""
    for node in nodes:
        if not (isinstance(node, ast.Call) and _name(node.func) == "add_argument"):
            continue
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        default = next((item.value for item in node.keywords if item.arg == "default"), None)
        if default is not None:
            yield from ((word.lstrip("-").replace("-", "_"), default) for word in words)


def training_of(request: CodeRequest, script: Script) -> ScriptTraining | None:
    """Return what a script says of its training with the options of a job; None if it does not use the Trainer."""
    with suppress(BadInput):  # its requirements cannot be read
        beside = script.path.parent / "requirements.txt"
        requirements = read_text(beside, LARGEST_SCRIPT) if beside.is_file() else ""
        return training_in(script.text, requirements, request.options)
    return None
