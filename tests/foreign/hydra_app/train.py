"""Ridge regression whose settings Hydra composes from conf/."""

import logging

import hydra
import numpy as np
from omegaconf import DictConfig, OmegaConf

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    log.info(OmegaConf.to_yaml(cfg))
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 6))
    y = x @ np.arange(6.0) + random.normal(size=80)
    train, test = slice(0, cfg.data.rows), slice(60, 80)
    weights = np.linalg.solve(x[train].T @ x[train] + cfg.model.penalty * np.eye(6), x[train].T @ y[train])
    print("penalty_used:", cfg.model.penalty)
    print("rows_used:", cfg.data.rows)
    print("rmse:", float(np.sqrt(np.mean((x[test] @ weights - y[test]) ** 2))))


if __name__ == "__main__":
    main()
