"""The results of a study and how they are shown.

- `trials.Trial`: a trial that has ended; `points.Point`: trials that differ only in their seed, merged.
- `front.StudyFront`: points, Pareto ranks, and groups of points that cannot be told apart; `front.trials_on_front`: the
  trials that no other one beats as measured.
- `hypervolume`: the volume that a front dominates, its reference point and its growth.
- `run_noise.RunNoise`: how far one run scatters, from repeats and from what is assumed without any.
- `quality_model.QualityModel`: the surface of quality and the probability that a run collapses.
- `recommendation.recommend`: which configurations to take, and the commands that launch them.
- `payoff.payoff_of`: what the search has cost against what every later run saves.
- `answer.StudyAnswer`: all of these for one study, in sentences; `answer.StudyResult`: what `paretune study` returns.
- `tables`: pareto.csv, and frames of the front, of predicted points and of all trials.
- `figures`: the chart, with plotly and as a matplotlib figure; `page.page`: pareto.html; `page.study_note`: the note of
  the study's MLflow run.
"""
