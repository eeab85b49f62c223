"""The results of a study, from trials that have ended to the answer and its page.

trials          `Trial`: one trial, from its reservation to its end
run_noise       how far two runs of one job differ
points          trials that differ in nothing but the seed, merged: means and their errors
front           Pareto ranks of points, and which of them cannot be told apart
recommendation  which points to take, why, with which commands, and whether the search has paid for itself
answer          all of it in sentences, as text and as a result
tables          pareto.csv, and the tables of texts
figures         the chart, on the page and as a picture
page            pareto.html, and the note of the study's run
design          what a designed experiment can tell
hypervolume     the volume that a front dominates
"""
