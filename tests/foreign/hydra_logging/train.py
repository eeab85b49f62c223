"""Ridge regression that prints its configuration and its errors through Hydra's logger."""

import json
import logging
from pathlib import Path

import hydra
import numpy as np
from omegaconf import DictConfig, OmegaConf

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    log.info("configuration:\n%s", OmegaConf.to_yaml(cfg))
    random = np.random.default_rng(cfg.seed)
    x = random.normal(size=(80, 6))
    y, weights, curve = x @ np.arange(6.0), np.zeros(6), []
    for epoch in range(cfg.max_epochs):
        weights -= cfg.optimizer.lr * x[:60].T @ (x[:60] @ weights - y[:60]) / 60
        curve.append(float(np.sqrt(np.mean((x[60:] @ weights - y[60:]) ** 2))))
        log.info("epoch %d | val/rmse %.6f", epoch, curve[-1])
    used = {"optimizer.lr": cfg.optimizer.lr, "max_epochs": cfg.max_epochs}
    rounded = [round(value, 6) for value in curve]
    truth = {"used": used, "logged": {"val/rmse": rounded[-1]}, "curves": {"val/rmse": rounded}}
    Path("truth.json").write_text(json.dumps(truth))


if __name__ == "__main__":
    main()
