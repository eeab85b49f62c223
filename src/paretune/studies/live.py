"""The front of a study in the cell of a notebook, drawn anew while the study runs."""

import base64
import html
import io
import sys
from collections.abc import Callable
from typing import Any

from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.note import picture
from paretune.studies.results.recommendation import headline


def live_front() -> Callable[[StudyAnswer], None] | None:
    """What shows an answer in the cell that runs now, in place of the answer before; None outside of a notebook.

    A notebook is a process in which IPython has a kernel; its terminal has none.
    """
    found = sys.modules.get("IPython")  # who runs a notebook has imported it
    shell = None if found is None else found.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display

    handle: Any = display(HTML("<p>No trial has ended yet.</p>"), display_id=True)  # type: ignore[no-untyped-call]
    return lambda answer: handle.update(HTML(shown(answer)))  # type: ignore[no-untyped-call]


def shown(answer: StudyAnswer) -> str:
    """What an answer says first and the picture of its front, as HTML that needs no other file."""
    said = html.escape(" ".join(headline(answer.front, answer.picks)))
    drawn = picture(answer)
    if drawn is None:
        return f"<p>{said}</p>"
    written = io.BytesIO()
    drawn.figure().savefig(written, format="png")
    encoded = base64.b64encode(written.getvalue()).decode()
    return f'<p>{said}</p><img width="620" alt="{html.escape(drawn.title)}" src="data:image/png;base64,{encoded}">'
