"""Parameters of the command `mcp`."""

from dataclasses import dataclass

from paretune.core.errors import refuse
from paretune.specification.parameters import check, parameter


@dataclass(frozen=True, kw_only=True)
class McpRequest:
    """What agents may do through this server.

    Raises:
        BadInput: with all faults at once.
    """

    session_budget_usd: float = parameter(
        0.0, "dollars that all that agents launch may cost together; with 0 they may look only", minimum=0
    )
    own_code: bool = parameter(False, "let agents launch jobs with scripts, projects and images of their own")

    def __post_init__(self) -> None:
        refuse(check(self))
