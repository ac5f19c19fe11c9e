"""A task that does nothing, for Hydra's own multirun; it tells when it first began."""

import os
import time
from pathlib import Path

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_name="config")
def main(config: DictConfig) -> None:
    """Leave a mark at the first job."""
    mark = Path(os.environ["BENCH_MARK"])
    if not mark.exists():
        mark.write_text(str(time.time()))


if __name__ == "__main__":
    main()
