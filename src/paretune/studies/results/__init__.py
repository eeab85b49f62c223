"""The results of a study: from its ended trials to its answer and its page.

- `trials`: `Trial`, one trial from its reservation to its end
- `configurations`: merges trials into configurations with means and errors
- `front`: ranks configurations
- `figures`: writes their metrics with units and errors
- `recommendation`: which configurations of the front to use, why, and with which commands
- `answer`: the answer in sentences
- `tables`: pareto.csv and the tables of the page
- `page`: pareto.html, its chart, and the note of the study's run
- `result`: the answer as the value that `run_study` returns
"""
