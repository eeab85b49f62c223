"""A dense network in Keras 3 on scikit-learn's digits."""

import argparse
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="input batch size for training")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("-lr", "--learning-rate", type=float, default=0.01, dest="rate")
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--seed", type=int, default=1)
FLAGS = parser.parse_args()

keras.utils.set_random_seed(FLAGS.seed)
x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0)
model = keras.Sequential(
    [
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dropout(FLAGS.dropout),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(FLAGS.rate), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=FLAGS.batch_size, epochs=FLAGS.epochs, validation_split=0.1, verbose=2)
loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", loss)
print("Test accuracy:", accuracy)
print("global_batch_size_used:", FLAGS.batch_size)
print("learning_rate_used:", FLAGS.rate)
print("dropout_used:", FLAGS.dropout)
print("seed_used:", FLAGS.seed)
