"""Reads from a script's text what its training with Hugging Face's Trainer computes, so that it can be estimated.

    training_in(text, requirements, given) -> ScriptTraining | None      pure: what the text says
    training_of(spec, script) -> JobSpec | None                          the job, with what its script says

The script is not run. A value that its text does not show keeps the Trainer's default.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from paretune.core.errors import BadInput
from paretune.core.reading import LARGEST_SCRIPT, read_text
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import OF_THE_BATCH
from paretune.specification.program import TRAINER, Program
from paretune.specification.rules import RESERVED_TRAINING_ARGUMENTS
from paretune.user_code.script import Script

MODEL_FOLDER = "/opt/ml/model"
_LIBRARIES = ("transformers", "trl", "setfit", "sentence_transformers")
_TRAINER = re.compile(r"\w*Trainer")
_ARGUMENTS = re.compile(r"\w*TrainingArguments|\w+Config")  # TRL's classes end in Config, as in SFTConfig
_VERSION = re.compile(r"^\s*transformers(?:\[[^\]]*\])?\s*(?:==|~=)\s*(\d+)\.(\d+)", re.MULTILINE)
_CHECKED = re.compile(r"check_min_version\(\s*[\"'](\d+)\.(\d+)")
_OF_A_JOB = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs")
"""TrainingArguments that are parameters of a job."""
_USUAL = {"per_device_train_batch_size": 8, "num_train_epochs": 3.0}
"""Defaults of TrainingArguments that differ from those of a job."""
_HALVES = ("fp16", "bf16")
_FORMAT = ("dtype", "torch_dtype")  # arguments of from_pretrained, since transformers 4.56 and before


@dataclass(frozen=True, kw_only=True)
class ScriptTraining:
    """Holds what a script's text says of its training with the Trainer."""

    program: str  # `trainer`, or `trainer-4.46` with the version of transformers that it requires
    model: str | None  # the model that it loads, if its text shows it
    task: str  # classification, token-classification or causal-lm
    fine_tuning: str  # full, lora or qlora
    lora_rank: int | None
    max_seq_length: int | None
    loads_bf16: bool  # whether it loads the model in bf16, whatever the format of its files
    gets_plan: bool  # whether it has Hugging Face's parser, so that paretune passes batch and epochs
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of TrainingArguments, as far as the text shows them


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


def training_of(spec: JobSpec, script: Script) -> JobSpec | None:
    """Return a job that runs a script with the Trainer, with what its script says of its training.

    What the user gave goes first. Returns None for other scripts, and if the text does not show the model.
    """
    try:
        beside = script.path.parent / "requirements.txt"
        requirements = read_text(beside, LARGEST_SCRIPT) if beside.is_file() else ""
        training = training_in(script.text, requirements, spec.training_arguments)
        return None if training is None else _completed(spec, training)
    except BadInput:  # an option of the script has a name of a job's parameter, but another meaning
        return None


def _completed(spec: JobSpec, training: ScriptTraining) -> JobSpec | None:
    read, arguments = training.arguments, dict(training.arguments)
    if "model" not in spec.model_fields_set and training.model is None:
        return None
    values: dict[str, Any] = {"model": training.model, "program": training.program, "task": training.task}
    values |= {"fine_tuning": training.fine_tuning, "lora.r": training.lora_rank}
    values |= {"max_seq_length": training.max_seq_length, "precision": _precision(training)}
    values |= _USUAL | {name: read[name] for name in _OF_A_JOB if name in read}
    values = {name: value for name, value in values.items() if value is not None}
    values = {name: value for name, value in values.items() if name.partition(".")[0] not in spec.model_fields_set}
    if training.gets_plan or spec.gives(*OF_THE_BATCH):
        values = {name: value for name, value in values.items() if name not in OF_THE_BATCH}
    if training.gets_plan:
        values.pop("num_train_epochs", None)
    folder = str(read.get("output_dir", MODEL_FOLDER))
    if not folder.startswith(MODEL_FOLDER):
        arguments["save_strategy"] = "no"  # what is outside the model folder is not uploaded
    arguments = {name: value for name, value in arguments.items() if name not in RESERVED_TRAINING_ARGUMENTS}
    return spec.replace(**values, training_arguments=arguments)


def _precision(training: ScriptTraining) -> str | None:
    """Return the precision of a job. With adapters, only frozen weights have the format in which a model is loaded."""
    half = next((name for name in _HALVES if training.arguments.get(name) is True), None)
    is_pure = training.loads_bf16 and (half is None or (half == "bf16" and training.fine_tuning == "full"))
    return "bf16-true" if is_pure and training.fine_tuning != "qlora" else half
