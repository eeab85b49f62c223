"""The loss of a language model from the input of its output layer, without the logits of all tokens.

For N tokens and a vocabulary of V tokens, the logits, their fp32 copy and its gradient would take 12 N V bytes, most of
the memory of a small model. Here, a chunk of at most CHUNK_TOKENS tokens is computed at a time, and its gradient right
after its loss. So nothing is computed twice, and what is kept for the backward pass has the sizes of the input and of
the weights.

`torch.nn.functional.linear_cross_entropy` (since PyTorch 2.13) does the same, but not with label smoothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from paretune.estimating.memory import CHUNK_TOKENS

IGNORED = -100  # label of tokens that have none, as in PyTorch
_WIDEST = 200.0  # logits from -200 to 200: a cap or a scale changes at least one of them, in any number format
LossOf = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Takes the input of an output layer, its weights and its biases. Returns a loss."""


def summed_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    smoothing: float = 0.0,
) -> torch.Tensor:
    """Return the sum of the cross-entropies of N tokens, in fp32, as `cross_entropy` would from their logits.

    Shapes: `hidden` (N, H), `weight` (V, H), `bias` (V,) and `labels` (N,), where IGNORED means no label. Under
    autocast, products are computed in its number format. Otherwise, `hidden` and `weight` must have the same format.
    """
    place = hidden.device.type
    form = torch.get_autocast_dtype(place) if torch.is_autocast_enabled(place) else weight.dtype
    arguments = (hidden, weight, bias, labels, smoothing, form, torch.is_grad_enabled())
    loss: torch.Tensor = _SummedEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss


class _SummedEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass. The backward pass only multiplies them."""

    @staticmethod
    def forward(
        context: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        smoothing: float,
        form: torch.dtype,
        differentiates: bool,
    ) -> torch.Tensor:
        inputs = (hidden, weight, bias)
        of_hidden, of_weight, of_bias = (
            _zeros(item, item is not hidden) if item is not None and needed and differentiates else None
            for item, needed in zip(inputs, context.needs_input_grad, strict=False)
        )
        context.set_materialize_grads(False)
        loss = torch.zeros((), device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            matrix, added = weight.to(form), None if bias is None else bias.to(form)
            for start in range(0, len(hidden), CHUNK_TOKENS):
                chunk = slice(start, start + CHUNK_TOKENS)
                part = hidden[chunk].to(form)
                logits = torch.nn.functional.linear(part, matrix, added).float()
                loss += _entropy_(logits, labels[chunk], smoothing)
                if not differentiates:
                    continue
                gradient = logits.to(form)
                del logits
                if of_hidden is not None:
                    of_hidden[chunk] = gradient @ matrix
                if of_weight is not None and form == of_weight.dtype:
                    of_weight.addmm_(gradient.T, part)
                elif of_weight is not None:
                    of_weight += gradient.T @ part
                if of_bias is not None:
                    of_bias += gradient.sum(0, dtype=of_bias.dtype)
        context.save_for_backward(of_hidden, of_weight, of_bias)
        context.forms = [None if item is None else item.dtype for item in inputs]
        return loss

    @staticmethod
    def backward(context: Any, *outputs: torch.Tensor | None) -> Any:
        (factor,) = outputs
        gradients = [
            None if item is None or factor is None else item.mul_(factor).to(form)
            for item, form in zip(context.saved_tensors, context.forms, strict=True)
        ]
        return (*gradients, None, None, None, None)


def _zeros(item: torch.Tensor, is_summed: bool) -> torch.Tensor:
    """Return zeros for the gradient of a tensor, in fp32 if it is a sum over chunks."""
    return torch.zeros_like(item, dtype=torch.float32 if is_summed else item.dtype)


def _entropy_(logits: torch.Tensor, labels: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Return the summed cross-entropy of fp32 logits (N, V), and replace the logits with its gradients."""
    counts = (labels != IGNORED)[:, None]
    labels = labels.where(counts[:, 0], 0)[:, None]
    logits -= logits.amax(-1, keepdim=True)
    answered = (1 - smoothing) * logits.gather(-1, labels)
    if smoothing:
        answered += smoothing * logits.mean(-1, keepdim=True)
    total = logits.exp_().sum(-1, keepdim=True)
    loss = ((total.log() - answered) * counts).sum()
    logits /= total
    logits.scatter_add_(-1, labels, torch.full_like(total, smoothing - 1))
    if smoothing:
        logits -= smoothing / logits.shape[-1]
    logits *= counts
    return loss


class OutputLayer:
    """The output layer of a language model, which returns a loss in place of logits inside `computing`.

    The loss is computed inside the forward pass of the model, where FSDP has gathered the layer's weights, and where
    DDP expects all computations. The model returns it as its `logits`, because they are the layer's output.
    """

    def __init__(self, layer: torch.nn.Linear) -> None:
        # If hooks of accelerate move the layer's input to its device, they then call `_old_forward`.
        name = "_old_forward" if hasattr(layer, "_hf_hook") else "forward"
        self._layer, self._logits = layer, getattr(layer, name)
        self._loss_of: LossOf | None = None
        setattr(layer, name, torch.compiler.disable(self._forward))  # type: ignore[no-untyped-call]

    def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self._loss_of is None:
            logits: torch.Tensor = self._logits(hidden)
            return logits
        return self._loss_of(hidden, self._layer.weight, self._layer.bias)

    @contextmanager
    def computing(self, loss_of: LossOf) -> Iterator[None]:
        """Return the loss of `loss_of` in place of logits inside the block."""
        self._loss_of = loss_of
        try:
            yield
        finally:
            self._loss_of = None


@torch.no_grad()
def find_output_layer(model: Any, place: torch.device) -> OutputLayer | None:
    """Return the output layer of a model if its output is what the model returns as logits; otherwise None.

    To find out, one token passes through the model, and the layer's output is replaced with numbers. Some models scale
    the logits or cap them, such as Gemma 2. None is also returned if the layer is not a plain linear layer, if its
    weights are divided over a tensor group, or if other code has replaced its forward pass. If the model is sharded,
    all processes must call this.
    """
    layer = model.get_output_embeddings()
    if type(layer) is not torch.nn.Linear or ("forward" in vars(layer) and not hasattr(layer, "_hf_hook")):
        return None
    shown: list[torch.Tensor] = []

    def show(layer: Any, _: Any, output: torch.Tensor) -> torch.Tensor:
        if hasattr(layer.weight, "full_tensor"):  # a DTensor
            return output
        shown.append(torch.linspace(-_WIDEST, _WIDEST, output.numel(), device=output.device).to(output).view_as(output))
        return shown[-1]

    was_training = model.training
    hook = layer.register_forward_hook(show)
    try:
        token = torch.zeros((1, 1), dtype=torch.long, device=place)
        returned = model.eval()(input_ids=token, attention_mask=torch.ones_like(token)).logits
    finally:
        hook.remove()
        model.train(was_training)
    is_plain = len(shown) == 1 and returned.shape == shown[0].shape and torch.equal(returned.to(shown[0]), shown[0])
    return OutputLayer(layer) if is_plain else None
