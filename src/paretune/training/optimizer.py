"""AdamW that updates fp32 weights, even of a bf16 model. Only precision=bf16-true makes it update bf16 weights.

Otherwise, each trained bf16 weight has an fp32 copy, its master (`estimating.formats`). The optimizer updates the
master and rounds it into the model. So a bf16 model needs no autocast, which would cast each fp32 weight and many
activations in every pass. In the backward pass, a weight takes 16 bytes either way: 2 + 2 (gradient) + 4 (master) + 8
(moments) with masters, and 4 + 4 (gradient) + 8 (moments) with autocast. In fp16, the loss is scaled, and so are the
gradients.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from transformers import TrainingArguments

from paretune.estimating.formats import Formats
from paretune.training import cpu, device

_FIRST_SCALE, _GROWTH, _BACKOFF, _GROWS_AFTER = 2.0**16, 2.0, 0.5, 2000  # defaults of PyTorch's GradScaler


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
    def step(self, norm_of: Callable[[list[torch.Tensor]], torch.Tensor]) -> torch.Tensor:
        """Update the weights and drop the gradients. Returns the norm of the gradients before they were clipped.

        `norm_of` returns the norm of the gradients of the given weights. The host does not wait for the device.
        """
        rounded = [(weight, master, weight.grad) for weight, master in self._rounded if weight.grad is not None]
        if rounded:
            buffers, masters = self._buffers, [master for _, master, _ in rounded]
            wide = [buffers[master] if master in buffers else torch.empty_like(master) for master in masters]
            torch._foreach_copy_(wide, [gradient for *_, gradient in rounded])
            for (weight, master, _), gradient in zip(rounded, wide, strict=True):
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
