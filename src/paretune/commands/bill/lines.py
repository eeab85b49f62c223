"""One line of AWS's bill, and what kind of charge it is.

Columns: AWS Data Exports user guide, "Cost and Usage Report (CUR) 2.0" table dictionary (read 2026-11-22).
"""

import re
from dataclasses import dataclass, field
from decimal import Context, Decimal
from enum import Enum
from functools import lru_cache

from paretune.core.tags import AWS_PREFIX

EXACT = Context(prec=200)
"""Decimal arithmetic that rounds nothing: a number of a bill has at most 80 digits, and 200 hold a product of two."""
USAGE_TYPES = frozenset({"Usage", "DiscountedUsage", "SavingsPlanCoveredUsage"})
"""Types of usage lines; the second is covered by a reservation, the third by a Savings Plan."""
_PLANS = frozenset({"SavingsPlanNegation", "SavingsPlanRecurringFee", "SavingsPlanUpfrontFee", "RIFee"})
_TRAINING = re.compile(r"^(?:[A-Z]{2,}\d*-)?(\w*Train\w*)[:-](?:\w+:)?(ml\.[\w-]+\.\w+)$")
"""USE1-Train:ml.m5.large, EU-SpotTrain:ml.p3.2xlarge; not USE1-TrainingPlanUpfrontFee:... , which names no hours."""
_POOL = re.compile("warm.?pool|retained|keep.?alive", re.IGNORECASE)
"""Expected in the usage type of a warm pool's hours. AWS publishes none, and no bill with one has been seen here."""
_HOURS = re.compile("h(ou)?rs?", re.IGNORECASE)


class LineKind(Enum):
    """Kind of charge. Every line has one; the kinds of BILLED make up `billed_usd`."""

    INSTANCE = "instance hours"
    POOL = "warm pool hours"
    STORAGE = "storage"
    DISCOUNT = "discount"
    OTHER = "other"
    PLAN = "fee or negation of a plan"
    CREDIT = "credit or refund"
    TAX = "tax"


BILLED = frozenset({LineKind.INSTANCE, LineKind.POOL, LineKind.STORAGE, LineKind.DISCOUNT, LineKind.OTHER})
"""Kinds in `billed_usd`: the unblended cost before tax, credits, refunds and the fees and negations of plans.

The negation of a Savings Plan takes back the on-demand dollars of a covered line, which the fee of the plan replaces:
the line's share of the fee is in `effective_usd`.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of the bill; dollars are exact."""

    id: str
    type: str  # `line_item_line_item_type`
    usage_type: str
    resource: str = ""  # usually the ARN of a training job
    account: str = ""  # that has used it; empty if the bill does not have it, as `sku`, AWS's id of product and price
    sku: str = ""
    start: int = 0  # seconds since the epoch
    end: int = 0  # the same
    charge: int = 0  # hash of all that says what it is for, but not of its id and amounts
    file: str = ""  # name of its file
    run_tag: str = ""  # value of the tag `paretune:run`; empty without one
    unit: str = ""
    amount: Decimal = field(default=Decimal(0))  # hours of an instance, GB-months of storage
    unblended_usd: Decimal = field(default=Decimal(0))  # `line_item_unblended_cost`
    list_usd: Decimal | None = None  # cost on demand by the public price; None if the bill does not have it
    rate: Decimal | None = None
    """Dollars per unit of `amount` behind `list_usd`, or behind `unblended_usd` without one; None if unknown."""
    effective_usd: Decimal | None = field(default=Decimal(0))
    """Cost with Savings Plans, reservations and private rates; None if a plan or a reservation covers it and the bill
    does not have its share of that."""

    @property
    def kind(self) -> LineKind:
        """The kind of charge."""
        return kind_of(self.type, self.usage_type, self.unit)

    @property
    def job_name(self) -> str:
        """Name of the training job that is its resource, given by ARN or name; empty if it is another resource."""
        head, _, name = self.resource.partition(":training-job/")
        if re.fullmatch(r"[\w.-]+", self.resource):
            return self.resource.lower()
        return name.lower() if head.startswith("arn:") else ""

    @property
    def region(self) -> str:
        """Region in its resource's ARN; empty if it has none."""
        parts = self.resource.split(":", 4)
        return parts[3] if len(parts) == 5 and parts[0] == "arn" else ""

    @property
    def is_spot(self) -> bool:
        """Whether it charges for instances of managed spot."""
        match = _TRAINING.match(self.usage_type)
        return match is not None and "spot" in match[1].lower()

    @property
    def rated(self) -> tuple[str, str] | None:
        """Instance type and region of the rate that its hours are part of; None for spot, storage and other usage."""
        is_rated = self.kind in (LineKind.INSTANCE, LineKind.POOL) and self.region and not self.is_spot
        return (self.instance_type, self.region) if is_rated and self.instance_type else None

    @property
    def instance_type(self) -> str:
        """Type of the instances that it charges for, such as ml.g5.xlarge; empty if it charges for none."""
        return instance_type_of(self.usage_type)


@lru_cache(maxsize=4096)
def kind_of(line_type: str, usage_type: str, unit: str = "") -> LineKind:
    """Return the kind of a line; an unknown type is OTHER, which is billed and named in the tables."""
    if line_type == "Tax":
        return LineKind.TAX
    if line_type in {"Credit", "Refund"}:
        return LineKind.CREDIT
    if line_type in _PLANS:
        return LineKind.PLAN
    if line_type not in USAGE_TYPES:
        return LineKind.DISCOUNT if line_type.endswith("Discount") else LineKind.OTHER
    if "Volume" in usage_type:
        return LineKind.STORAGE
    if unit and not _HOURS.fullmatch(unit):
        return LineKind.OTHER
    if _POOL.search(usage_type):
        return LineKind.POOL
    return LineKind.INSTANCE if instance_type_of(usage_type) else LineKind.OTHER


@lru_cache(maxsize=4096)
def instance_type_of(usage_type: str) -> str:
    """Return the instance type in a usage type of SageMaker Training, or an empty text for any other usage type."""
    match = _TRAINING.match(usage_type)
    return match[2] if match else ""


def tag_name(key: str) -> str:
    """Return a tag's key without the prefixes of bills: `user:paretune:run` and `user_paretune_run` become equal."""
    plain = re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")
    return re.sub(r"^(resource_?tags_|tags_)?(user_)?", "", plain)


RUN_TAG = tag_name(f"{AWS_PREFIX}run")
