"""Predictions of a trained model on the rows of a file.

request.PredictRequest    what can be asked for
predict.predict           finds the model, has the training wing predict, prices the seconds
"""
