"""One step of several trainings on one frozen base: their forward and backward passes as one.

The trainings have equal batches and equal random states, so a step of each alone would draw the same masks.
`torch.vmap` computes the losses for stacked trainable weights: products with frozen weights become one product over the
batches of all, those of adapters become products of stacked matrices.
"""

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paretune.core.errors import first_line
from paretune.specification.container import JobDocument
from paretune.specification.parameters import COMPUTES
from paretune.training.shared.turns import RandomState, Seat

_HARMLESS = {
    *("weight_decay", "max_grad_norm", "max_steps", "label_smoothing_factor", "per_device_eval_batch_size"),
    *("adam_beta1", "adam_beta2", "adam_epsilon"),
    *("warmup_steps", "warmup_ratio", "lr_scheduler_type", "lr_scheduler_kwargs"),
    *("logging_steps", "logging_strategy", "logging_first_step"),
    *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "save_total_limit"),
    *("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
}
"""Training arguments that the Trainer of each training observes outside the forward and the backward pass."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The forward and backward pass of one micro-batch that a Trainer asks for."""

    trainer: Any
    trained: Mapping[str, torch.nn.Parameter]
    inputs: Mapping[str, torch.Tensor]
    rows: torch.Tensor | int | None  # of the optimiser step, what the Trainer calls num_items_in_batch


class JointSteps:
    """Answers requests for steps: with the loss, gradients added to the parameters', or None for a step to do alone."""

    def __init__(self) -> None:
        self._is_possible = True

    def answer(self, seats: Sequence[Seat]) -> list[torch.Tensor | None]:
        """One answer for each seat; those that would draw and see the same are computed together."""
        answers: dict[int, torch.Tensor | None] = {}
        for group in _alike(seats):
            losses = self._losses(group) if len(group) > 1 and self._is_possible else [None] * len(group)
            answers |= {id(seat): loss for seat, loss in zip(group, losses, strict=True)}
        return [answers[id(seat)] for seat in seats]

    def _losses(self, seats: Sequence[Seat]) -> Sequence[torch.Tensor | None]:
        began = time.perf_counter()
        seats[0].random.restore()
        steps: list[Step] = [seat.request for seat in seats]
        try:
            losses, gradients = self._joint(steps)
        except Exception as error:  # the model does what cannot be done for several, or memory is not sufficient
            self._is_possible = False
            sentence = (
                f"the trials go on with a step each, not one for all: {type(error).__name__}: {first_line(error)}"
            )
            for step in steps:
                step.trainer.callback.events.write(step.trainer.state.global_step, {}, message=sentence)
            return [None] * len(seats)
        for number, step in enumerate(steps):
            for name, parameter in step.trained.items():
                if gradients[name] is not None:
                    _add_gradient(parameter, gradients[name][number])
        after, share = RandomState.now(), (time.perf_counter() - began) / len(seats)
        for seat in seats:
            seat.random = after
            seat.add_seconds(share)
        return losses

    def _joint(self, steps: Sequence[Step]) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """K losses, and parameter name to K gradients on top of each other."""
        trainer, rows = steps[0].trainer, steps[0].rows
        own = [step.trained for step in steps]
        stacked = {name: torch.stack([item[name].detach() for item in own]).requires_grad_() for name in own[0]}
        for step in steps:
            step.trainer.model.train()
        inputs = trainer._prepare_inputs(steps[0].inputs)

        def loss_of(weights: dict[str, torch.Tensor]) -> torch.Tensor:
            model = _WithWeights(trainer.model, weights)
            loss: torch.Tensor = trainer.compute_loss(model, dict(inputs), num_items_in_batch=rows)
            return loss

        with trainer.compute_loss_context_manager():
            losses = torch.vmap(loss_of, randomness="same")(stacked)
        found = torch.autograd.grad(losses.sum(), list(stacked.values()), allow_unused=True)
        return list(losses.detach().unbind()), dict(zip(stacked, found, strict=True))


class _WithWeights:
    """A model called with other trainable weights than its own."""

    def __init__(self, model: Any, weights: dict[str, torch.Tensor]) -> None:
        self._model = model
        self._weights = weights

    def __call__(self, **inputs: Any) -> Any:
        return torch.func.functional_call(self._model, self._weights, kwargs=inputs)


def key_of(document: JobDocument) -> tuple[Any, ...] | None:
    """Equal for trials that can be trained side by side; None for one that is trained alone.

    They differ in the learning rate and in what computes nothing.
    """
    spec = document.spec
    is_plain = spec.compiler == "none" and not spec.activation_checkpointing
    is_whole = spec.probe_steps is None and spec.profile_steps is None and not spec.runs_own_training
    if spec.fine_tuning != "lora" or not is_plain or not is_whole or not set(spec.training_arguments) <= _HARMLESS:
        return None
    plan = document.plan
    sizes = plan.per_device_train_batch_size, plan.gradient_accumulation_steps, plan.devices
    return (*spec.key_of(*COMPUTES), *sizes)


def groups_of(documents: Sequence[JobDocument], *, is_possible: bool) -> list[list[JobDocument]]:
    """The trials in their order, consecutive ones with equal keys in one group; each alone where it is not possible."""
    groups: list[list[JobDocument]] = []
    for document in documents:
        key = key_of(document) if is_possible else None
        if groups and key is not None and key == key_of(groups[-1][0]):
            groups[-1].append(document)
        else:
            groups.append([document])
    return groups


class SharedModel:
    """Models for trainings with equal seeds: copies of one that was built, which share its frozen weights."""

    def __init__(self) -> None:
        self._first: Any = None
        self._random: RandomState | None = None

    def make(self, build: Any) -> Any:
        """A model as `build` makes it, with the random states that it leaves."""
        if self._random is None:
            self._first = build()
            self._random = RandomState.now()
        self._random.restore()
        return _copy(self._first)


def _copy(model: Any) -> Any:
    frozen = {id(item): item for item in model.parameters() if not item.requires_grad}
    return copy.deepcopy(model, frozen)


def _add_gradient(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    """Add it in the layout of the parameter: the fused Adam of PyTorch 2.13 reads both as they lie in memory."""
    if parameter.grad is None:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)
    else:
        parameter.grad += gradient


def _alike(seats: Sequence[Seat]) -> list[list[Seat]]:
    """The seats in groups whose steps would draw the same masks and see the same batch."""
    groups: list[list[Seat]] = []
    for seat in seats:
        group = next((group for group in groups if _is_alike(group[0], seat)), None)
        if group is None:
            groups.append([seat])
        else:
            group.append(seat)
    return groups


def _is_alike(one: Seat, other: Seat) -> bool:
    if one.request is None or other.request is None:
        return False
    mine, its = one.request.inputs, other.request.inputs
    is_same = mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)
    return is_same and one.request.rows == other.request.rows and one.random.draws_as(other.random)
