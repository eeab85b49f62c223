"""Recorded runs compared with each other, also at other prices, in tables, charts and sentences.

A report reads runs and changes none. Measured, simulated, published and estimated runs never share a mean, a sum or a
line, and neither do billed and notional dollars.

    command.py          the command: finds the runs, builds the report and keeps it with the command's own run
    jobs.py             recorded jobs as a pandas frame: settings and measurements
    costs.py            view=runs: every run at its own and at other prices, totals, errors of estimates
    groups.py           view=scaling and view=compare: the runs of each value of a setting
    statistics.py       least squares, lack of fit, Tukey's test and intervals, by statsmodels
    document.py         a report as text, Markdown, CSV and one HTML page with charts of plotly
"""
