"""Runs in MLflow: written, read back and found. MLflow is imported here, and for projects of other people elsewhere.

store         Tracking, tracking_uri, require_answer   opens and finds runs; whether a server answers
run           Run, RunStatus, TROUBLE                  one run that is written; the errors that MLflow raises
recorded_job  RecordedRun, RecordedJob                 one run as MLflow has it, and the job that it records
schema        names of the tags of runs
ui_view       the view of runs that MLflow opens
figures       figures and tables of the validation rows, for a run's artifacts
models        the model of a job as a LoggedModel of MLflow, and versions of registered models

`store`, `run` and `models` import MLflow, which takes two seconds of CPU: other folders import them in functions where
a command may not need them.
"""
