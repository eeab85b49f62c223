"""What a trained model says of the rows of a file: `python -m paretune.training.predicting REQUEST ANSWER EVENTS`.

classifier.Classifier    a model folder that reads texts, with what its configuration says of classes and task
tasks                    from outputs to predictions, scores and figures: classes, several labels, numbers
file                     rows in, rows with predictions out, piece by piece
"""
