"""Models of finished jobs in MLflow's model registry: a version each, and which of them is the champion.

figures.figures_of    what the run of a job says about its model
champion.decide       whether a model takes the place of the champion, and why
register.register     makes the version and moves the aliases; `overdue` finds runs whose model still has none
"""
