"""An empty job for Hydra's multirun, which records when the first job began."""

import os
import time
from pathlib import Path

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_name="config")
def main(config: DictConfig) -> None:
    """Write the time into a file, unless the file exists."""
    mark = Path(os.environ["BENCH_MARK"])
    if not mark.exists():
        mark.write_text(str(time.time()))


if __name__ == "__main__":
    main()
