"""One job, from its specification to its recorded run.

Follow a billed second through three modules: `attempts` adds it to the bill when an attempt has ended, `bill` turns
seconds into dollars, and `outcome` records the dollars as `cost_usd` in MLflow.
"""
