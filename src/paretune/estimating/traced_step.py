"""The peak memory of a device, computed from one traced training step.

The training wing traces a step of a model on one device (training/memory). The bytes held at a moment are linear in the
rows of the batch, and the shares of devices are arithmetic, so one trace serves all batches and clusters.

    weights, state      divided by the devices that share them, by tensor degree and stages where they are in layers
    gathered (fsdp)     two layers and what is outside layers, in the format of their products (fully_shard, torch
                        2.13); in a pipeline the whole stage, which is gathered once for all micro-batches
    buckets (ddp)       a second copy of all gradients (torch 2.13, gradient_as_bucket_view=False)
    activations         tensor degree t: (10 + 24/t) / 34 of those in layers (Korthikanti et al., arXiv 2205.05198,
                        section 4.2.1); p stages: 1/p of the layers, of at most p micro-batches at a time (1F1B:
                        Narayanan et al., arXiv 2104.04473, section 2.2.1)
    4-bit weights       NF4_BYTES each
"""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paretune.core.packages import version_of
from paretune.specification.container import write_json

KINDS = ("gradients", "casts", "inputs", "layers", "other", "passing")
"""Kinds of bytes beside weights and state: gradients; weights cast for autocast; inputs of layers; activations inside
layers and outside; what only one operation of the backward pass needs."""
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8
"""Bytes of a weight in nf4 with double quantisation, 0.516: 4 bits, an 8-bit constant for 64 of them, and a 32-bit one
for 256 such constants (Dettmers et al., arXiv 2305.14314, section 3)."""
_GRADIENTS, _CASTS, _INPUTS, _LAYERS, _OTHER, _PASSING = range(len(KINDS))
_KINDS = len(KINDS)
_PACKAGES = ("torch", "transformers", "peft")
_VERSION = 1  # version of the meaning of a trace; traces of other versions are made again

Moments = tuple[tuple[float, ...], ...]
"""M moments, each with the fixed bytes of all kinds, then the bytes per row of all kinds."""


@dataclass(frozen=True, kw_only=True)
class StepSetting:
    """All that a traced step depends on."""

    config: Mapping[str, Any]  # content of the model's config.json
    task: str
    fine_tuning: str
    lora_rank: int
    lora_dropout: float
    lora_target_modules: tuple[str, ...]
    half: str  # `bf16` or `fp16` if it multiplies in it, else empty
    frozen_in_half: bool  # whether the frozen weights beside adapters have that format
    on_processor: bool
    tokens: int
    recomputes: bool  # whether the backward pass makes the activations of a layer again

    def key(self, versions: Sequence[str] = ()) -> str:
        """Return a key that is equal for equal settings and versions of the packages that trace them."""
        text = json.dumps([_VERSION, asdict(self), list(versions)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class Division:
    """The division of a job's rows and model over its devices, and what they offload."""

    rows: float  # of a micro-batch of one device
    evaluated_rows: float = 0.0  # of a batch of an evaluation, 0 without one
    accumulates: bool = False  # whether gradients of earlier micro-batches are kept
    weight_sharers: int = 1
    state_sharers: int = 1
    gathers: bool = False  # whether shared weights are gathered a layer at a time
    has_buckets: bool = False  # whether gradients are copied to be averaged
    half: bool = False  # whether gathered weights are in half precision
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    offloads_inputs: bool = False  # whether they are kept in the memory of the machine
    offloads_weights: bool = False  # the same of weights
    quantised: bool = False  # whether frozen matrices have 4 bits
    collects: bool = False  # whether the first process collects all weights in its memory when the training ends
    live: int = 0  # weights that are kept gathered at once; 0 for those of two layers


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Bytes of one device at its peak: `held` for the whole step, `passing` for a part of it."""

    held: float
    passing: float


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """Bytes of one device that trains the whole model alone."""

    layers: float  # repeated layers; their weights and gradients are counted apart from all others
    layer_weights: float
    other_weights: float
    input_weights: float  # of `other_weights`, those of the embedding table
    largest_layer: float
    quantisable: float  # number of frozen weights of linear layers; `quantisable_bytes` are their traced bytes
    quantisable_bytes: float
    layer_gradients: float
    other_gradients: float
    state: float  # of the optimiser
    train: Moments  # moments of a training step
    evaluate: Moments  # moments of an evaluation

    @classmethod
    def of_json(cls, record: Mapping[str, Any]) -> "TracedStep":
        """Read the result of `asdict`, ignoring its `setting`; raises TypeError for anything else."""
        values = {name: value for name, value in record.items() if name != "setting"}
        moments = {name: tuple(tuple(map(float, row)) for row in record[name]) for name in ("train", "evaluate")}
        return cls(**{**values, **moments})

    @property
    def gradients(self) -> float:
        """Bytes of all gradients."""
        return self.layer_gradients + self.other_gradients

    def peak(self, division: Division) -> Peak:
        """Return the peak of the device that holds most."""
        weights, share = self._weights(division), self._trained_share(division)
        state, gradients = self.state * share / division.state_sharers, self.gradients * share
        constant = 0.0 if division.offloads_weights else weights / division.weight_sharers + state
        constant += gradients if division.has_buckets else 0.0
        gathered, copies = self._gathered(division), 1.5 if division.half else 2.0
        of_layer = self.layer_gradients / max(1.0, self.layers) / division.tensor
        one_gradient = copies * of_layer if division.gathers else 0.0
        factor = np.ones(_KINDS)
        factor[_GRADIENTS] = 0.0 if division.offloads_weights else share / division.state_sharers
        factor[_CASTS] = 0.0 if division.gathers else self._layer_share(division)
        in_stage = min(1.0, division.pipeline / division.micro_batches) / division.pipeline  # held of rows and layers
        factor[_INPUTS] = in_stage * (min(1.0, 2 / max(1.0, self.layers)) if division.offloads_inputs else 1.0)
        factor[_LAYERS] = in_stage * share_in_layers(division.tensor)
        factor[[_OTHER, _PASSING]] = 1 / division.micro_batches
        factor_of_evaluation = factor.copy()  # its batches go through the stages whole
        factor_of_evaluation[_LAYERS] = share_in_layers(division.tensor) / division.pipeline
        factor_of_evaluation[[_INPUTS, _OTHER, _PASSING]] = 1.0
        peaks = [Peak(held=constant + 2 * weights, passing=0.0)] if division.collects else []
        for moments, rows in ((self.train, division.rows), (self.evaluate, division.evaluated_rows)):
            if not rows:
                continue
            table = np.array(moments).reshape(-1, 2, _KINDS)
            table_bytes = table[:, 0] + table[:, 1] * rows
            if division.accumulates and moments is self.train:
                table_bytes[:, _GRADIENTS] = self.gradients
            table_bytes = table_bytes * (factor if moments is self.train else factor_of_evaluation)
            of_gradient = np.where(table_bytes[:, _GRADIENTS] > 0, one_gradient, 0.0)
            held = constant + table_bytes[:, _GRADIENTS] + gathered + of_gradient
            passing = table_bytes[:, _CASTS:].sum(axis=1)
            most = int(np.argmax(held + passing))
            peaks.append(Peak(held=float(held[most]), passing=float(passing[most])))
        return max(peaks, key=lambda peak: peak.held + peak.passing)

    def _layer_share(self, division: Division) -> float:
        return 1 / (division.tensor * division.pipeline)

    def _trained_share(self, division: Division) -> float:
        """Return the share of the trained weights in one stage and one member of a tensor group."""
        inside = self.layer_gradients * self._layer_share(division)
        return (inside + self._ends(division, self.other_gradients)) / self.gradients if self.gradients else 0.0

    def _weights(self, division: Division) -> float:
        quantised = self.quantisable * NF4_BYTES - self.quantisable_bytes if division.quantised else 0.0
        return (self.layer_weights + quantised) * self._layer_share(division) + self._ends(division, self.other_weights)

    def _ends(self, division: Division, whole: float) -> float:
        """Return the larger part outside layers: embedding table (first stage), head (last), or both in one."""
        if division.pipeline == 1 or not self.other_weights:
            return whole
        table = self.input_weights / self.other_weights
        return whole * max(table, 1 - table)

    def _gathered(self, division: Division) -> float:
        if not division.gathers:
            return 0.0
        width = 0.5 if division.half else 1.0  # against the four bytes that they are kept in
        if division.pipeline > 1:
            return width * self._weights(division)
        if division.live:
            return width * min(4.0 * division.live, self._weights(division))
        return width * (2 * self.largest_layer / division.tensor + self._ends(division, self.other_weights))


def share_in_layers(tensor: int) -> float:
    """Return the share of the activations inside layers that one device of a tensor group keeps."""
    return (10 + 24 / tensor) / 34


_GRID = tuple(
    itertools.product((1.0, 8.0, 64.0, 1e4), (0.0, 0.1, 1.0), (0.0, 1.0), (0.05, 1.0), (0.1, 0.5, 1.0), (0.1, 1.0))
)
"""Rows, and shares of gradients, casts, inputs, layers and the two others, for which the largest moment is searched."""


def envelope(fewer: np.ndarray, more: np.ndarray, rows: tuple[int, int]) -> Moments:
    """Return the moments at which a device may hold most.

    Args:
        fewer: bytes (N operations, kinds) with `rows[0]` rows in the batch.
        more: the same with `rows[1]`.
        rows: two numbers of rows.

    Raises:
        ValueError: the steps have different operations.
    """
    if fewer.shape != more.shape:
        raise ValueError(f"a step of {rows[0]} rows has {len(fewer)} operations, one of {rows[1]} has {len(more)}")
    of_row = (more - fewer) / (rows[1] - rows[0])
    fixed = fewer - rows[0] * of_row
    chosen = set()
    for many, gradients, casts, inputs, layers, others in _GRID:
        shares = np.array([gradients, casts, inputs, layers, others, others])
        chosen.add(int(np.argmax((fixed + many * of_row) @ shares)))
    return tuple(tuple(map(float, (*fixed[at], *of_row[at]))) for at in sorted(chosen))


class TracedSteps:
    """Traced steps stored below `PARETUNE_HOME`, so that each is traced once; there are none without a folder."""

    def __init__(self, home: Path | None) -> None:
        self._folder = None if home is None else home / "traced-steps"
        self._known: dict[str, TracedStep | None] = {}

    def find(self, setting: StepSetting) -> TracedStep | None:
        """Return the step, or None if it was not traced, or its model cannot be traced."""
        key = setting.key(_versions())
        if key not in self._known:
            record = self._read(key)
            if record is None:
                return None
            self._known[key] = None if "error" in record else TracedStep.of_json(record)
        return self._known[key]

    def is_untried(self, setting: StepSetting) -> bool:
        """Whether tracing it has not been tried yet."""
        return self._folder is not None and self.find(setting) is None and self._read(setting.key(_versions())) is None

    def store(self, setting: StepSetting, answer: Mapping[str, Any]) -> None:
        """Store the answer of the tracing process: a step, or `error`, so that it is not tried again."""
        if self._folder is not None:
            write_json(self._folder / f"{setting.key(_versions())}.json", {**answer, "setting": asdict(setting)})

    def _read(self, key: str) -> dict[str, Any] | None:
        if self._folder is None:
            return None
        try:
            record = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None


@cache
def _versions() -> tuple[str, ...]:
    return tuple(map(version_of, _PACKAGES))
