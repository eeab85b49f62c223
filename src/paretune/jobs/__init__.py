"""One job, from its specification to its recorded run.

Billed seconds pass through three modules: `attempts` adds them to the bill when an attempt has ended, `bill` turns them
into dollars, and `outcome` records the dollars as `cost_usd` in MLflow.
"""
