"""AdamW that updates fp32 weights, even of a bf16 model. Only precision=bf16-true makes it update bf16 weights.

Otherwise, each trained bf16 weight has an fp32 copy, its master (`estimating.formats`). The optimizer updates the
master and rounds it into the model. So a bf16 model needs no autocast, which would cast each fp32 weight and many
activations in every pass. In the backward pass, a weight takes 16 bytes either way: 2 + 2 (gradient) + 4 (master) + 8
(moments) with masters, and 4 + 4 (gradient) + 8 (moments) with autocast. In fp16, the loss is scaled, and so are the
gradients.

If a step has several micro-batches, gradients of bf16 weights are added up in fp32, which takes 4 more bytes per weight
(`keep_gradients`). If the norm of the gradients is not a finite number, a step changes nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from paretune.estimating.formats import Formats
from paretune.training import cpu, device
from paretune.training.arguments import Arguments

_FIRST_SCALE, _GROWTH, _BACKOFF, _GROWS_AFTER = 2.0**16, 2.0, 0.5, 2000  # defaults of PyTorch's GradScaler


@dataclass(frozen=True, kw_only=True)
class Update:
    """The result of a step; each value is a tensor of one number on the device."""

    norm: torch.Tensor  # of the gradients before they were clipped
    is_skipped: torch.Tensor  # 1 if the norm was not a finite number, so that the weights stayed as they were; else 0
    is_lost: torch.Tensor  # 1 if the step was skipped and no smaller scale of the loss can help; else 0


class MasterAdamW:
    """Updates the trained weights among `named` with fused AdamW, and rounds them to the number format of the model.

    If weights are updated in the format of the model, each weight is its own master. As in the Trainer, weight decay
    applies to matrices, but not to vectors (biases, norms) or tables of biases, such as T5's for relative positions.
    The caller sets the learning rate of PyTorch's optimizer, `inner`. In fp16, the caller multiplies the loss by
    `scale`, which is halved when gradients overflow. In other formats, `scale` is None.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, torch.nn.Parameter]],
        arguments: Arguments,
        learning_rate: float,
        formats: Formats,
    ) -> None:
        rounded = device.DTYPES[formats.weights] if formats.has_masters else None
        self._masters: dict[str, torch.Tensor] = {}
        self._rounded: list[tuple[torch.Tensor, torch.Tensor]] = []  # weights of the model with their masters
        self._sums: dict[torch.Tensor, torch.Tensor] = {}  # gradients of bf16 weights in this step so far, fp32
        for name, weight in named:
            if not weight.requires_grad:
                continue
            self._masters[name] = master = weight if rounded is None else weight.data.float()
            if rounded is not None:
                weight.data = master.to(rounded)
                self._rounded.append((weight, master))
        self._all = list(self._masters.values())
        self._halves = self._rounded or [(weight, weight) for weight in self._all if weight.dtype != torch.float32]
        self._buffers = cpu.kept_for_gradients(master for _, master in self._rounded)
        decaying = [weight for name, weight in self._masters.items() if weight.ndim >= 2 and "bias" not in name]
        others = [weight for name, weight in self._masters.items() if weight.ndim < 2 or "bias" in name]
        groups = [
            {"params": decaying, "weight_decay": arguments.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        betas = (arguments.adam_beta1, arguments.adam_beta2)
        groups = [group for group in groups if group["params"]]
        self.inner: Any = torch.optim.AdamW(
            groups, lr=learning_rate, betas=betas, eps=arguments.adam_epsilon, fused=True
        )
        self._limit = arguments.max_grad_norm or float("inf")
        first = self._all[0]
        self.scale = torch.full((), _FIRST_SCALE, device=first.device) if formats.scales else None
        self._good_steps = torch.zeros((), dtype=torch.int32, device=first.device)

    @torch.no_grad()
    def keep_gradients(self) -> None:
        """Add the gradients of bf16 weights to their sums in fp32, and drop them.

        Call this after each micro-batch of a step except the last one. In bf16, each addition would be rounded to 8
        significant bits.
        """
        for weight, master in self._halves:
            if weight.grad is None:
                continue
            if weight in self._sums:
                self._sums[weight] += weight.grad
            else:
                self._sums[weight] = self._wide(master).copy_(weight.grad)
            weight.grad = None

    @torch.no_grad()
    def round_sums(self) -> None:
        """Replace the sums with bf16 gradients, so that DDP averages the gradients of a whole step over the processes.

        Call this before the last micro-batch of a step. DDP sends the gradients during its backward pass, in bf16.
        """
        for weight, total in self._sums.items():
            weight.grad = total.to(weight.dtype)
        self._sums.clear()

    def _wide(self, master: torch.Tensor) -> torch.Tensor:
        """Return memory for the fp32 gradient of a master."""
        buffer = self._buffers.get(master)
        return torch.empty_like(master, dtype=torch.float32) if buffer is None else buffer

    @torch.no_grad()
    def step(self, norm_of: Callable[[list[torch.Tensor]], torch.Tensor]) -> Update:
        """Update the weights and drop the gradients. If their norm is not a finite number, the weights stay the same.

        `norm_of` returns the norm of the gradients of the given weights. The host does not wait for the device.
        """
        self._give_gradients_to_masters()
        norm = norm_of(self._all)
        norm = norm if self.scale is None else norm / self.scale
        is_skipped = (~norm.isfinite()).float().to(self._good_steps.device)
        self.inner.grad_scale, self.inner.found_inf, is_lost = self._clipping(norm), is_skipped, is_skipped
        if self.scale is not None:
            self.inner.grad_scale *= self.scale
            is_lost = is_skipped * (self.scale <= 1)
            torch._amp_update_scale_(self.scale, self._good_steps, is_skipped, _GROWTH, _BACKOFF, _GROWS_AFTER)
        self.inner.step()
        self.inner.zero_grad()
        self.round()
        return Update(norm=norm, is_skipped=is_skipped, is_lost=is_lost)

    def _give_gradients_to_masters(self) -> None:
        """Move the gradients of the model's weights to the weights that are updated, in their format."""
        for weight, total in self._sums.items():
            if weight.grad is not None:
                total += weight.grad
                weight.grad = None
        sums = [(weight, master) for weight, master in self._halves if weight in self._sums]
        for weight, master in sums:
            master.grad = self._sums.pop(weight).to(master.dtype)
        rounded = [(weight, master) for weight, master in self._rounded if weight.grad is not None]
        if rounded:
            wide = [self._wide(master) for _, master in rounded]
            torch._foreach_copy_(wide, [weight.grad for weight, _ in rounded if weight.grad is not None])
            for (weight, master), gradient in zip(rounded, wide, strict=True):
                weight.grad, master.grad = None, gradient

    def is_finite(self) -> bool:
        """Return whether all trained weights of this process are finite numbers."""
        local = [master.to_local() if isinstance(master, DTensor) else master for master in self._all]
        return all(bool(master.isfinite().all()) for master in local)

    def _clipping(self, norm: torch.Tensor) -> torch.Tensor:
        """Return the divisor that clips gradients of this norm as PyTorch does. AdamW divides each gradient by it."""
        return ((norm.float() + 1e-6) / self._limit).clamp(min=1)

    @torch.no_grad()
    def round(self) -> None:
        """Round the masters into the model. Call it after you have changed the tensors of `state` or `weights`."""
        if self._rounded:
            torch._foreach_copy_([weight for weight, _ in self._rounded], [master for _, master in self._rounded])

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the masters by name."""
        return {name: master.detach() for name, master in self._masters.items()}

    def state(self) -> dict[str, torch.Tensor]:
        """Return masters, moments and step counts by name; checkpoints write and read these tensors.

        Their names and shapes do not depend on number formats, so a training run may continue in another format.
        """
        tensors = {}
        for name, master in self._masters.items():
            moments = self.inner.state[master]
            if not moments:  # the weight had no gradient yet
                moments["step"] = torch.zeros((), device=master.device)
                moments["exp_avg"], moments["exp_avg_sq"] = torch.zeros_like(master), torch.zeros_like(master)
            tensors[f"weight.{name}"] = master.detach()
            tensors |= {f"{kind}.{name}": value.detach() for kind, value in moments.items()}
        return tensors

    @torch.no_grad()
    def give_masters(self) -> None:
        """Replace the rounded weights of the model with their masters, which are then written. No step may follow.

        This also frees moments and gradients, because writing the model needs about as much memory as they take.
        """
        self.inner.state.clear()
        self._buffers.clear()
        for weight, master in self._rounded:
            weight.grad, weight.data = None, master
