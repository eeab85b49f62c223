"""Ways of dividing a model that have not run on GPUs yet. They build on the training, which does not import them.

docs/large-models.md lists what each must still show.
"""
