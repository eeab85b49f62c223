"""Logistic regression as a function that fire makes a command line of."""

import json

import fire
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


def train(learning_rate=0.01, epochs=5, shuffle=True):
    rows, labels = load_breast_cancer(return_X_y=True)
    train_rows, test_rows, train_labels, test_labels = train_test_split(rows, labels, random_state=0)
    scaler = StandardScaler().fit(train_rows)
    model = SGDClassifier("log_loss", learning_rate="constant", eta0=learning_rate, shuffle=shuffle, random_state=0)
    curve = []
    for epoch in range(1, epochs + 1):
        model.partial_fit(scaler.transform(train_rows), train_labels, classes=[0, 1])
        curve.append(f1_score(test_labels, model.predict(scaler.transform(test_rows))))
        print(f"Epoch {epoch}/{epochs} test f1: {curve[-1]:.6f}")
    used = {"learning_rate": learning_rate, "epochs": epochs, "shuffle": shuffle}
    with open("truth.json", "w") as file:
        json.dump({"used": used, "logged": {"test_f1": curve[-1]}, "curves": {"test_f1": curve}}, file)


if __name__ == "__main__":
    fire.Fire(train)
