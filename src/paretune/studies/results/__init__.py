"""The results of a study, from trials that have ended to the answer and its page.

trials  `Trial`: one trial, from its reservation to its end
front   trials merged into configurations with means and errors; how far two runs differ; Pareto ranks
answer  which points to take, why, with which commands; in sentences, tables and pareto.csv, as text and as a result
page    pareto.html, its chart, and the note of the study's run
"""
