"""The command `predict`: predictions of a trained model on the rows of a file.

command  PredictRequest: model, file and columns
run      what the command prints and records
predict  finds the model, predicts in the training wing, prices the seconds
model_files  the files of a model that MLflow knows, on this machine
"""
