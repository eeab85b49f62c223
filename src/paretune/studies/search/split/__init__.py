"""`method: split`: F1 and seconds are learnt apart, and joined into a predicted front.

search          search, recommended     run a study to its end; the front that it recommends
actions         Actions, Action         jobs that could begin next, and which is worth most
knowledge       Knowledge               what is known of every candidate after each job
candidates      Candidate, candidates   the points of a space, each taken apart
own_training    JobSecondsModel, OwnQualityModel   seconds and quality of a training of the user's own
rows            DataRows, rows_of       rows that jobs train on
seconds_model   SecondsModel            seconds of a row on each kind of cluster
earlier         EarlierStudy, earlier_studies   what MLflow holds of earlier studies of the same model
borrowed_f1     BorrowedF1Model, Source         F1 from own values and those of earlier studies, as far as they agree
earlier_seconds EarlierSeconds                  seconds that earlier studies tell, as far as own jobs agree
"""
