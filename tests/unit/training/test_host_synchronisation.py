"""How often a training reads a number from the device, for which the processor waits until the device has made it.

Counted on a processor, where a read costs nothing: it is the same read on a GPU. Copies of whole tensors are counted
where Python asks for them.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from paretune.specification.container import JobFolder
from paretune.training import callback as callback_module
from paretune.training.callback import AGREE_STEPS, MetricsCallback
from tests.unit.training import conftest, test_loop

pytestmark = pytest.mark.slow  # it trains

STEPS = 40
_SCALARS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "allclose"}
_COPIES = {"cpu", "numpy", "tolist"}
_LIBRARIES = ("transformers", "paretune", "accelerate")


def reader() -> str:
    """The innermost file of a library that trains on the stack, such as `paretune/training/trainer.py`."""
    for frame in reversed(traceback.extract_stack()):
        parts = Path(frame.filename).parts
        if frame.filename == __file__:  # it may lie in a folder with the name of a library
            continue
        for library in _LIBRARIES:
            if library in parts[:-1]:
                at = len(parts) - 1 - parts[::-1].index(library)
                return "/".join(parts[at:])
    return "elsewhere"


class _Scalars(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in _SCALARS:
            self.found[reader()] += 1
        return func(*args, **(kwargs or {}))


class _Copies(TorchFunctionMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _COPIES:
            self.found[reader()] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Reads in the block, by file."""
    result: Counter[str] = Counter()
    with _Scalars(result), _Copies(result):
        yield result


@pytest.fixture
def reads(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Reads from the end of the first step to the end of the last one, in a training without log and evaluation."""
    after: dict[int, Counter[str]] = {}
    end = MetricsCallback.on_step_end
    spec = conftest.SPEC.replace(probe_steps=STEPS, training_arguments={"logging_steps": 1000, "weight_decay": 0.01})
    with counting() as result:

        def telling(callback: MetricsCallback, args: Any, state: Any, control: Any, **kw: Any) -> None:
            end(callback, args, state, control, **kw)
            after[state.global_step] = Counter(result)

        monkeypatch.setattr(MetricsCallback, "on_step_end", telling)
        monkeypatch.setattr(callback_module, "AGREE_S", float("inf"))
        test_loop.report_of(spec, folder)
    return after[STEPS] - after[1]


def test_our_loop_reads_nothing_from_the_device_but_what_processes_agree_on_every_ten_steps(
    reads: Counter[str],
) -> None:
    actual = {name: count for name, count in reads.items() if name.startswith("paretune/")}

    assert actual == {"paretune/training/callback.py": STEPS // AGREE_STEPS - 1}
