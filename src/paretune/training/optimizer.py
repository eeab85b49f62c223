"""AdamW whose weights and moments are fp32, whatever the number format of the model, except with bf16-true.

The optimizer has an fp32 copy of each bf16 weight, its master (`estimating.formats`), updates that, and rounds it into
the model. A model in bf16 needs no autocast, which casts
each fp32 weight and many activations in every pass. Memory for a weight in the backward pass is the same: with masters
2 + 2 (gradient) + 4 + 8 (moments) bytes, with autocast 4 + 4 + 8. Gradients in fp16 are those of a scaled loss.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from transformers import TrainingArguments

from paretune.estimating.formats import Formats
from paretune.training import cpu, device

_FIRST_SCALE, _GROWTH, _BACKOFF, _GROWS_AFTER = 2.0**16, 2.0, 0.5, 2000  # of PyTorch's GradScaler


class MasterAdamW:
    """Fused AdamW of the trained weights among `named`, which are rounded to the format in which the model holds them.

    If that is the format in which they are updated, each weight is its own master. Matrices decay; vectors (biases,
    norms) and tables of biases, as T5's of relative positions, do not, as in the Trainer. `inner` is for a schedule of
    the learning rate. With a format that scales the loss, it is multiplied by `scale`, which is halved when gradients
    overflow.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, torch.nn.Parameter]],
        arguments: TrainingArguments,
        learning_rate: float,
        formats: Formats,
    ) -> None:
        rounded = device.DTYPES[formats.weights] if formats.has_masters else None
        self._masters: dict[str, torch.Tensor] = {}
        self._rounded: list[tuple[torch.nn.Parameter, torch.Tensor]] = []  # weights of the model with their masters
        for name, weight in named:
            if not weight.requires_grad:
                continue
            self._masters[name] = master = weight if rounded is None else weight.data.float()
            if rounded is not None:
                weight.data = master.to(rounded)
                self._rounded.append((weight, master))
        self._all = list(self._masters.values())
        self._wide = cpu.kept_for_gradients(master for _, master in self._rounded)
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
    def step(self, norm_of: Callable[[list[torch.Tensor]], torch.Tensor]) -> torch.Tensor:
        """Update the weights and drop the gradients. Returns the norm of the gradients before they were clipped.

        `norm_of` returns the norm of all gradients of such weights. Nothing waits for the device.
        """
        held = [(weight, master, weight.grad) for weight, master in self._rounded if weight.grad is not None]
        if held:
            wide = [self._wide[master] if master in self._wide else torch.empty_like(master) for _, master, _ in held]
            torch._foreach_copy_(wide, [gradient for *_, gradient in held])
            for (weight, master, _), gradient in zip(held, wide, strict=True):
                weight.grad, master.grad = None, gradient
        norm = norm_of(self._all)
        if self.scale is None:
            self.inner.grad_scale = self._clipping(norm)
        else:
            norm = norm / self.scale
            self.inner.grad_scale = self._clipping(norm) * self.scale
            self.inner.found_inf = overflows = (~norm.isfinite()).float().to(self.scale.device)
            torch._amp_update_scale_(self.scale, self._good_steps, overflows, _GROWTH, _BACKOFF, _GROWS_AFTER)
        self.inner.step()
        self.inner.zero_grad()
        self.round()
        return norm

    def _clipping(self, norm: torch.Tensor) -> torch.Tensor:
        """Return the divisor that clips gradients of this norm like PyTorch. AdamW divides them as it reads them."""
        return ((norm.float() + 1e-6) / self._limit).clamp(min=1)

    @torch.no_grad()
    def round(self) -> None:
        """Round the masters into the model, after a step or after weights were read into `state`."""
        if self._rounded:
            torch._foreach_copy_([weight for weight, _ in self._rounded], [master for _, master in self._rounded])

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the fp32 weights by name."""
        return {name: master.detach() for name, master in self._masters.items()}

    def state(self) -> dict[str, torch.Tensor]:
        """Return the fp32 weights, moments and counts of steps by name, which checkpoints write and read.

        They do not depend on the number format of the model: a training may continue in another.
        """
        tensors = {}
        for name, master in self._masters.items():
            moments = self.inner.state[master]
            if not moments:  # it had no gradient yet
                moments["step"] = torch.zeros((), device=master.device)
                moments["exp_avg"], moments["exp_avg_sq"] = torch.zeros_like(master), torch.zeros_like(master)
            tensors[f"weight.{name}"] = master.detach()
            tensors |= {f"{kind}.{name}": value.detach() for kind, value in moments.items()}
        return tensors

    @torch.no_grad()
    def give_masters(self) -> None:
        """Replace the rounded weights of the model by their masters, to write it in fp32; no step may follow.

        The memory of moments and gradients is freed, because writing takes as much.
        """
        self.inner.state.clear()
        self._wide.clear()
        for weight, master in self._rounded:
            weight.grad, weight.data = None, master
