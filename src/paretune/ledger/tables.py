"""Tables of the ledgers. `migrations/` has one Alembic revision for each of their versions.

The tables of studies lie beside Optuna's own; those of shared budgets may lie in another database.
"""

import sqlalchemy as sa

STUDY_METADATA, BUDGET_METADATA = sa.MetaData(), sa.MetaData()

STUDIES = sa.Table(
    "paretune_studies",
    STUDY_METADATA,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("run_id", sa.String(64), nullable=False),  # its MLflow run; empty until that is created
    sa.Column("mark", sa.String(64), nullable=False),  # a tag of that run, which finds it while run_id is empty
    sa.Column("described", sa.Text, nullable=False),  # job, search and objectives as JSON
)
TRIALS = sa.Table(
    "paretune_ledger",
    STUDY_METADATA,
    sa.Column("study", sa.String(255), primary_key=True),
    sa.Column("trial", sa.Integer, primary_key=True),
    sa.Column("identity", sa.String(255), nullable=False),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("worst_usd", sa.Float),
    sa.Column("booked_usd", sa.Float),
    sa.Column("spent_usd", sa.Float),
    sa.Column("booking_order", sa.Integer),
    sa.Column("counts", sa.Integer, nullable=False),  # 1: one of the study's n_trials
    sa.Column("settled", sa.Integer, nullable=False),  # 1: the outcome is known, the same job is not run again
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),  # TrialNote as JSON
    sa.Column("ended", sa.Text),  # TrialEnd as JSON; empty while it runs
    sa.Column("kept_usd", sa.Float),  # 0 once it is booked
    sa.Index("paretune_ledger_identity", "study", "identity"),
    sa.Index("paretune_ledger_booking_order", "study", "booking_order"),
)
DRIVERS = sa.Table(
    "paretune_drivers",
    STUDY_METADATA,
    sa.Column("study", sa.String(255), primary_key=True),
    sa.Column("owner", sa.String(255), primary_key=True),
    sa.Column("seen", sa.Float, nullable=False),  # last heartbeat, seconds since the epoch
)
LEASES = sa.Table(
    "paretune_leases",
    STUDY_METADATA,
    sa.Column("study", sa.String(255), primary_key=True),
    sa.Column("holder", sa.String(255), nullable=False),  # a process, as `this_process` names it; empty if nobody
    sa.Column("token", sa.Integer, nullable=False),  # grows by one each time that the lease is taken
    sa.Column("until", sa.Float, nullable=False),  # seconds since the epoch, by the database's clock
    sa.Column("ended", sa.Text),  # which stage of the study has ended, as JSON
)
BUDGET_ENTRIES = sa.Table(
    "paretune_budget_entries",
    BUDGET_METADATA,
    sa.Column("job", sa.String(255), primary_key=True),  # a random name of the reservation, or the job's MLflow run
    sa.Column("run_id", sa.String(64), nullable=False),  # its MLflow run; empty until that is created
    sa.Column("month", sa.String(7), nullable=False),  # such as 2026-11, UTC
    sa.Column("origin", sa.String(16), nullable=False),  # measured or simulated
    sa.Column("worst_usd", sa.Float, nullable=False),
    sa.Column("booked_usd", sa.Float),  # empty while it runs
    sa.Column("kept_usd", sa.Float),  # the most that instances kept after it can still cost; 0 once that is booked
    sa.Column("reserved_at", sa.Float),  # seconds since the epoch, of the launcher's clock; empty up to version 1
    sa.Index("paretune_budget_entries_month", "month", "origin"),
    sa.Index("paretune_budget_entries_run", "run_id"),
)
BUDGET_TAGS = sa.Table(
    "paretune_budget_tags",
    BUDGET_METADATA,
    sa.Column("job", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("value", sa.String(256), nullable=False),
)
BUDGET_LOCK = sa.Table("paretune_budget_lock", BUDGET_METADATA, sa.Column("number", sa.Integer, primary_key=True))
