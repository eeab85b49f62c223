"""The job of a paid check of `doctor`: it leaves 250 MB that do not get smaller where a trained model goes."""

import os
from pathlib import Path

(Path(os.environ["SM_MODEL_DIR"]) / "random.bin").write_bytes(os.urandom(250_000_000))
