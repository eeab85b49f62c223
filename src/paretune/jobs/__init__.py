"""One job, from its specification to its recorded run.

A billed second is followed through attempts (an attempt ended), bill (seconds become dollars) and outcome (dollars
become `cost_usd` in MLflow).
"""
