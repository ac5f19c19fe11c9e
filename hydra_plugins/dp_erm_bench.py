"""The sweeper that Hydra finds here: it hands the sweep to `dp_erm_bench.cli`."""

from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class BlockSweeper(Sweeper):
    """Compose a sweep block by block and let the runner expand the scalar axes."""

    def setup(
        self,
        *,
        hydra_context: HydraContext,
        task_function: TaskFunction,
        config: DictConfig,
    ) -> None:
        """Keep what Hydra composed; the task function is never called."""
        self.hydra_context = hydra_context
        self.config = config

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep and leave with its exit code.

        Raises
        ------
        SystemExit
            Always: Hydra drops what a sweeper returns.
        """
        from dp_erm_bench.cli.app import sweep

        assert self.hydra_context is not None and self.config is not None
        raise SystemExit(
            sweep(arguments, self.hydra_context.config_loader, self.config)
        )
