"""Ways of dividing a model that have not run on GPUs yet.

The training imports them only for jobs that use them. docs/large-models.md lists what must still be shown for each.
"""
