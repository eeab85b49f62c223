"""The results of a study, from trials that have ended to the answer and its page.

trials          `Trial`: one trial, from its reservation to its end
configurations  trials that differ in nothing but the seed, merged: means and errors, how far two runs differ
front           Pareto ranks of points, and the volume that they dominate
recommendation  which points to take, why, with which commands, and whether the search has paid for itself
answer          all of it in sentences, tables and pareto.csv, as text and as a result
page            pareto.html, its chart, and the note of the study's run
"""
