"""What `doctor --paid` trains for a large output: nothing. It leaves 300 MB, which SageMaker does not compress."""

import os
from pathlib import Path

folder = Path(os.environ.get("SM_MODEL_DIR", "."))
with (folder / "noise.bin").open("wb") as file:
    for _ in range(300):
        file.write(os.urandom(1_000_000))
print("f1: 0")
