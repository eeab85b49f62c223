"""Operations of all processes of a job together; a job of one process needs no process group for them."""

import os
from typing import TypeVar

import torch
from torch.distributed.tensor import DTensor

Value = TypeVar("Value")


def is_first(*, of_instance: bool = False) -> bool:
    """Whether this is the first process of the job, or of its instance."""
    return os.environ.get("LOCAL_RANK" if of_instance else "RANK", "0") == "0"


def gather(value: Value) -> list[Value]:
    """The values that all processes have passed, in the order of their ranks; all of them must call it."""
    if not torch.distributed.is_initialized():
        return [value]
    values = [value] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def of_first(value: Value, source: int = 0) -> Value:
    """The value that the first process, or process `source`, has passed; all of them must call it."""
    values = [value]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(values, source)
    return values[0]


def wait_for_all() -> None:
    """Return when every process has called it."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a tensor that may be divided over processes, which must all call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
