"""The chart of a study in a notebook, while it runs."""

import sys
from collections.abc import Callable
from typing import Any

from paretune.presentation.chart import dressed
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.figures import as_html, front_figure


def live_chart() -> Callable[[StudyAnswer], None] | None:
    """What shows the chart of an answer below the running cell, in place of the one before; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):  # it runs in a terminal
        return None
    from IPython.display import display

    handle: Any = None

    def show(answer: StudyAnswer) -> None:
        nonlocal handle
        if (figure := front_figure(answer.front, answer.picks, lambda _: "")) is None:
            return
        title = {"text": as_html(answer.state()), "font": {"size": 14}}
        dressed(figure).update_layout(title=title, margin={"t": 80})
        bundle = {"text/plain": answer.state()} | figure._repr_mimebundle_()
        if handle is None:
            handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]  # IPython has no types
        else:
            handle.update(bundle, raw=True)

    return show
