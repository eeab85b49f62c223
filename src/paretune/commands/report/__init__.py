"""The command `report`: tables, figures and findings of recorded jobs.

command             ReportRequest: which runs, which view, on which terms
run                 finds the runs, builds the report, keeps it with the command's own run
views               the views `scaling` and `compare`
report              Report: sections of tables, sentences and pictures, as text, Markdown and an HTML page
observations        Observation: one completed or estimated job; Kind: jobs that may be compared with each other
factors             settings by which runs are compared and dollars added up
tables              rows per run, and the errors of estimates
repricing           costs in another region, on another day, on spot, or as billed
accuracy            errors of estimates
totals              dollars by study, month, tag and instance type
dollars_picture     the picture of dollars against F1
scaling             effect of larger clusters, or of another factor
comparison          one value of a setting against the others
spread              mean and sample standard deviation of repeats; intervals
regression          straight lines and whether they fit; findings: their results in words
scaling_figures     pictures of `scaling`; comparison_figures: pictures of `comparison`
"""
