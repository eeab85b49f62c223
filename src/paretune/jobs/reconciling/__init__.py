"""AWS's bill against the recorded runs.

request    `ReconcileRequest`: the parameters of `reconcile`
recorded   what runs tell of their bills
reconcile  reads both, matches them, and records what each run was billed
"""
