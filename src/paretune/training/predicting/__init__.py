"""Predicts the rows of a file: `python -m paretune.training.predicting REQUEST ANSWER EVENTS`.

classifier.Classifier    a model folder that reads texts, with its tokenizer, task and class names
predictions              from outputs to predictions, scores and metrics: classes, several labels, numbers, texts
predict                  rows in, rows with predictions out, piece by piece
"""
