"""The command `demo`: a whole simulated study with nothing to configure."""

from paretune.commands.command import command_of
from paretune.core.result import CommandOutput
from paretune.specification.parameters import Parameters, parameter


class DemoRequest(Parameters):
    """Whether the demo opens its page."""

    open: bool = parameter(True, "open the page in a browser, if this is a terminal with a display")


def _run(request: DemoRequest) -> CommandOutput:
    from paretune.commands.demo.run import run_demo  # MLflow takes a second to import

    return run_demo(opens=request.open)


COMMAND = command_of(DemoRequest, _run)
