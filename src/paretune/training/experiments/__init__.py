"""Ways of dividing a model that no GPU has tried. They build on the training, which imports none of them.

docs/large-models.md says what each still has to show.
"""
