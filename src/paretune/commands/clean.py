"""The command `clean`: what jobs have left in S3, and its removal on request; see `paretune.jobs.leftovers`."""

import time
from typing import ClassVar, Literal

from paretune.commands.command import command_of, open_store
from paretune.core.result import CommandOutput
from paretune.core.shell import command_line
from paretune.specification.parameters import Parameters, Rules, parameter, rules_of

_MOST = 40  # rows that are printed


class CleanOptions(Parameters):
    """The options of the command."""

    older_than: float | None = parameter(None, ge=1)
    """days since an object was written, after which it may be removed"""
    keep: Literal["front"] | None = parameter(None)
    """front: keep the models of trials on the front of their study"""
    yes: bool = parameter(False)
    """remove what is listed; without it nothing is"""

    rules: ClassVar[Rules] = rules_of(
        {
            "older_than is missing: give the days after which an object may be removed, such as --older_than 30": (
                lambda options: options.older_than is None
            )
        }
    )


def _run(options: CleanOptions) -> CommandOutput:
    from paretune.jobs.leftovers import found_in_s3, in_words, remove

    workplaces, tracking = open_store("clean")
    days = options.older_than or 0.0
    found, remarks = found_in_s3(tracking, workplaces.environment, days, keeps_front=options.keep == "front")
    removable = [each for each in found if not each.why_kept]
    kept = dict.fromkeys(each.why_kept for each in found if each.why_kept)
    lines = [
        f"jobs of this store have left {in_words(found)}" if found else "jobs of this store have left nothing in S3"
    ]
    lines += [f"  {each.row()['uri']}  {each.size / 1e9:.3f} GB" for each in removable[:_MOST]]
    lines += [f"  and {len(removable) - _MOST} more"] if len(removable) > _MOST else []
    for why in kept:
        size = sum(each.size for each in found if each.why_kept == why)
        lines.append(f"kept: {size / 1e9:.3f} GB, because {why}")
    if removable and options.yes:
        remove(removable, tracking, time.strftime("%Y-%m-%d"))
        lines.append(f"removed {in_words(removable)}")
    elif removable:
        given = options.changed() | {"yes": "true"}
        lines.append(f"to remove {in_words(removable)}: {command_line('clean', given)}")
    document = {"removed": options.yes, "found": [each.row() for each in found], "remarks": remarks}
    return CommandOutput(text="\n".join([*lines, *remarks]), document=document)


COMMAND = command_of(CleanOptions, _run)
