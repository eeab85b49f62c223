"""`method: split`: F1 and seconds are learnt apart, and joined into a predicted front.

search           Split                   runs a study to its end; `recommended`: the front that it recommends
actions          Actions, Action         jobs that could begin next, and which is worth most
knowledge        Knowledge               what is known at one moment, and what each candidate would add to it
predictions      Predictions, Outcomes   expected seconds, dollars and quality of every candidate
affordability    Affordability           which candidates can be paid, and their maximum runtimes
learner          Learner                 fits the models to all jobs that have ended
candidates       CandidateSpace          the points of a study, each taken apart
rows             DataRows                rows that jobs train on
seconds_model    SecondsModel            seconds of a row on each kind of cluster, or of a user's own training
earlier          EarlierStudy            earlier studies of the same model that MLflow holds
earlier_seconds  EarlierSeconds          seconds known from earlier studies, as far as own jobs agree
"""
