"""Predicts the rows of a file: `python -m paretune.training.predicting REQUEST ANSWER EVENTS`.

classifier.Classifier    a model folder that reads texts, with its tokenizer, task and class names
predict                  rows in, rows with predictions, scores and metrics out, piece by piece
"""
