"""Elastic net on scikit-learn's diabetes data."""

import sys

import mlflow
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNet
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split

alpha, l1_ratio = float(sys.argv[1]), float(sys.argv[2])
x, y = load_diabetes(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)

with mlflow.start_run():
    model = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, random_state=0).fit(x_train, y_train)
    predicted = model.predict(x_test)
    mlflow.log_params({"alpha": alpha, "l1_ratio": l1_ratio})
    mlflow.log_metric("mae", mean_absolute_error(y_test, predicted))
    mlflow.log_metric("r2", r2_score(y_test, predicted))
    mlflow.log_metrics({"alpha_used": alpha, "l1_ratio_used": l1_ratio})
    mlflow.log_dict({"coef": model.coef_.tolist()}, "coefficients.json")
