"""What a study has found, and how it is shown.

- `answer.answer`: the answer that trials give: `StudyAnswer`, as text, as page, as table, and as a rank for each run.
- `trials.Trial`, `trials.TrialStatus`: a trial that has ended.
- `front.StudyFront`: points, Pareto ranks, and groups of points that cannot be told apart.
- `front.trials_on_front`: those that no other one beats, as they were measured.
- `front.hypervolume`, `front.reference_point`: one number to compare fronts by.
- `points.Point`: trials that differ only in their seed, merged; `points.merge`, `points.each_point`; `points.value_of`
  reads a metric of a trial.
- `f1_model.F1Model`: F1 along the ridge of good learning rates, which shrinks what is stated of F1.
- `noise.RunNoise`, `noise.are_alike`: how far one run scatters, and whether two means differ by more than that;
  `noise.Scatter`: what repeats have shown.
- `recommendation.recommend`, `recommendation.headline`: which configurations to take, and the answer in sentences.
- `payoff.weigh`: what the search has cost against what every later run saves.
- `importance.importance`: which parameters an objective depends on.
- `page.page`: the HTML document; `figures`: its pictures.
- `quantities.format_value`, `quantities.usd`, `quantities.axis`: values and names of metrics as text.
"""
