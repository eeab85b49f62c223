"""LoRA trials side by side on one frozen base: the forward and backward passes of several trainings as one.

The trainings have equal batches and equal random states, so a step of each alone would draw the same dropout masks.
`torch.vmap` computes the losses for stacked trainable weights: products with frozen weights become one product over the
batches of all, those of adapters become products of stacked matrices.
"""

import copy
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paretune.core.errors import first_line
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec
from paretune.specification.parameters import COMPUTES
from paretune.training.shared_job.cooperative_threads import CooperativeThread, RandomState
from paretune.training.strategies import Strategy
from paretune.training.trainer import LengthGroupedTrainer

_HARMLESS = {
    *("weight_decay", "max_grad_norm", "max_steps", "label_smoothing_factor", "per_device_eval_batch_size"),
    *("adam_beta1", "adam_beta2", "adam_epsilon"),
    *("warmup_steps", "warmup_ratio", "lr_scheduler_type", "lr_scheduler_kwargs"),
    *("logging_steps", "logging_strategy", "logging_first_step"),
    *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "save_total_limit"),
    *("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
}
"""Training arguments that each Trainer applies outside the forward and the backward pass."""


def groups_of(documents: Sequence[JobDocument], *, is_possible: bool) -> list[list[JobDocument]]:
    """The trials in their order; consecutive ones that can be trained side by side share a group.

    If `is_possible` is False, each trial is alone.
    """
    keys = {id(document): _group_key(document) if is_possible else None for document in documents}
    groups = itertools.groupby(documents, lambda document: keys[id(document)] or id(document))
    return [list(group) for _, group in groups]


def _group_key(document: JobDocument) -> tuple[Any, ...] | None:
    """Equal for trials that differ only in the learning rate and limits; None for a trial that must train alone."""
    spec = document.spec
    is_plain = spec.compiler == "none" and not spec.activation_checkpointing
    is_whole = spec.probe_steps is None and spec.profile_steps is None and not spec.runs_own_training
    if spec.fine_tuning != "lora" or not is_plain or not is_whole or not set(spec.training_arguments) <= _HARMLESS:
        return None
    plan = document.plan
    sizes = plan.per_device_train_batch_size, plan.gradient_accumulation_steps, plan.devices
    return (*spec.key_of(*COMPUTES), *sizes)


class SharedModel:
    """Models for trainings with equal seeds: copies of the first one, which share its frozen weights."""

    def __init__(self) -> None:
        self._first: Any = None
        self._random: RandomState | None = None

    def make(self, build: Callable[[], Any]) -> Any:
        """A model as `build` makes it, with the random states that it leaves."""
        if self._random is None:
            self._first = build()
            self._random = RandomState.now()
        self._random.restore()
        frozen = {id(item): item for item in self._first.parameters() if not item.requires_grad}
        return copy.deepcopy(self._first, frozen)


class SideBySide(Strategy):
    """Trains one of several trials in a process, on one frozen base, in its own `thread`."""

    def __init__(self, spec: JobSpec, *, thread: CooperativeThread, shared: SharedModel, trials: int) -> None:
        super().__init__(spec)
        self._trials = trials
        self._thread = thread
        self._shared = shared

    def make(self, build: Callable[[], Any]) -> Any:
        """A model with its own trainable weights and the frozen weights of all trials."""
        return self._shared.make(build)

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """A Trainer that computes its steps together with the others."""
        return SideBySideTrainer(thread=self._thread, **arguments)

    def facts(self) -> dict[str, int]:
        """The number of trials that began side by side; each reports its share of the seconds and the memory of all."""
        return {"side_by_side": self._trials}


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """The forward and backward pass of one micro-batch, requested by a Trainer.

    `rows` are those of the optimiser step, what the Trainer calls num_items_in_batch.
    """

    trainer: Any
    trained: Mapping[str, torch.nn.Parameter]
    inputs: Mapping[str, torch.Tensor]
    rows: torch.Tensor | int | None

    def has_same_batch(self, other: "StepRequest") -> bool:
        """Whether both requests are for the same inputs."""
        is_same = self.inputs.keys() == other.inputs.keys()
        is_same = is_same and all(torch.equal(item, other.inputs[name]) for name, item in self.inputs.items())
        return is_same and self.rows == other.rows


class SideBySideTrainer(LengthGroupedTrainer):
    """A Trainer whose steps are computed together with those of others if possible."""

    def __init__(self, *, thread: CooperativeThread, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._thread = thread
        self._trained = {name: item for name, item in self.model.named_parameters() if item.requires_grad}

    def forward_and_backward(
        self, model: Any, inputs: Mapping[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The same loss as alone, computed together with trials that have an equal batch and equal masks."""
        is_whole = self.compute_loss_func is not None or num_items_in_batch is not None  # else divided afterwards
        step = StepRequest(trainer=self, trained=self._trained, inputs=inputs, rows=num_items_in_batch)
        loss: torch.Tensor | None = self._thread.ask(step if is_whole else None)
        return super().forward_and_backward(model, inputs, num_items_in_batch) if loss is None else loss


class JointSteps:
    """Answers requests for steps with the loss, after adding gradients to the parameters, or None: compute it alone."""

    def __init__(self) -> None:
        self._is_possible = True

    def answer(self, threads: Sequence[CooperativeThread]) -> list[torch.Tensor | None]:
        """One answer for each thread; steps with the same batch and the same random numbers are computed together."""
        groups: list[list[CooperativeThread]] = []
        for thread in threads:
            group = next((group for group in groups if _is_alike(group[0], thread)), None)
            if group is None:
                groups.append([thread])
            else:
                group.append(thread)
        answers: dict[int, torch.Tensor | None] = {}
        for group in groups:
            losses = self._losses(group) if len(group) > 1 and self._is_possible else [None] * len(group)
            answers |= {id(thread): loss for thread, loss in zip(group, losses, strict=True)}
        return [answers[id(thread)] for thread in threads]

    def _losses(self, threads: Sequence[CooperativeThread]) -> Sequence[torch.Tensor | None]:
        began = time.perf_counter()
        threads[0].random.restore()
        steps: list[StepRequest] = [thread.request for thread in threads]
        try:
            losses, gradients = self._joint(steps)
        except Exception as error:  # the model does what cannot be done for several, or memory is not sufficient
            self._is_possible = False
            message = (
                "from now on each trial computes its steps alone, because a joint step failed: "
                f"{type(error).__name__}: {first_line(error)}"
            )
            for step in steps:
                step.trainer.callback.events.write(step.trainer.state.global_step, {}, message=message)
            return [None] * len(threads)
        for number, step in enumerate(steps):
            for name, parameter in step.trained.items():
                if gradients[name] is not None:
                    _add_gradient(parameter, gradients[name][number])
        after, share = RandomState.now(), (time.perf_counter() - began) / len(threads)
        for thread in threads:
            thread.random = after
            thread.add_seconds(share)
        return losses

    def _joint(self, steps: Sequence[StepRequest]) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """K losses, and parameter name to K stacked gradients."""
        trainer, rows = steps[0].trainer, steps[0].rows
        names = steps[0].trained
        stacked = {
            name: torch.stack([step.trained[name].detach() for step in steps]).requires_grad_() for name in names
        }
        for step in steps:
            step.trainer.model.train()
        inputs = trainer._prepare_inputs(steps[0].inputs)

        def loss_of(weights: dict[str, torch.Tensor]) -> torch.Tensor:
            model = _WithWeights(trainer.model, weights)
            loss: torch.Tensor = trainer.compute_loss(model, dict(inputs), num_items_in_batch=rows)
            return loss

        with trainer.compute_loss_context_manager():
            losses = torch.vmap(loss_of, randomness="same")(stacked)
        gradients = torch.autograd.grad(losses.sum(), list(stacked.values()), allow_unused=True)
        return list(losses.detach().unbind()), dict(zip(stacked, gradients, strict=True))


class _WithWeights:
    """Calls a model with other trainable weights than its own."""

    def __init__(self, model: Any, weights: dict[str, torch.Tensor]) -> None:
        self._model = model
        self._weights = weights

    def __call__(self, **inputs: Any) -> Any:
        return torch.func.functional_call(self._model, self._weights, kwargs=inputs)


def _add_gradient(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    """Add a gradient in the parameter's memory layout: the fused Adam of PyTorch 2.13 needs the same for both."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)
    else:
        parameter.grad += gradient


def _is_alike(first: CooperativeThread, second: CooperativeThread) -> bool:
    """Whether the requested steps have the same batch and would draw the same dropout masks."""
    if first.request is None or second.request is None:
        return False
    return first.request.has_same_batch(second.request) and first.random.draws_as(second.random)
