"""A request to stop, wherever it comes from, takes effect at a safe moment and not before."""

import os
import signal

import pytest

from paretune.core.errors import Interrupted
from paretune.core.interruption import Interruption
from tests.support.processes import wait_until


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_is_remembered_and_raised_at_the_next_check_and_every_later_one(number: signal.Signals) -> None:
    with Interruption().listening() as interruption:
        os.kill(os.getpid(), number)
        wait_until(lambda: interruption.reason, within_s=5, what="the signal is remembered")

        for _ in range(2):
            with pytest.raises(Interrupted, match=f"interrupted by {number.name}") as raised:
                interruption.check()

    assert raised.value.exit_code == 130


def test_the_previous_handlers_come_back_after_the_block_even_when_it_raises() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def block() -> None:
        with Interruption().listening():
            assert signal.getsignal(signal.SIGINT) not in before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
