"""Keras' own training loop with its default progress bar."""

import argparse
import json
import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.01)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()

keras.utils.set_random_seed(0)
x, y = load_digits(return_X_y=True)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10, activation="softmax")])
optimizer = keras.optimizers.Adam(args.learning_rate)
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x / 16, y, batch_size=args.batch_size, epochs=args.epochs, validation_split=0.25)
curve = [round(value, 4) for value in history.history["val_accuracy"]]
used = {"learning-rate": float(optimizer.learning_rate), "batch-size": args.batch_size, "epochs": args.epochs}
truth = {"used": used, "logged": {"val_accuracy": curve[-1]}, "curves": {"val_accuracy": curve}}
Path("truth.json").write_text(json.dumps(truth))
