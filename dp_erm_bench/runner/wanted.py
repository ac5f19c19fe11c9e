"""What a block asks for: fits of one line, or the trials of a task."""

from __future__ import annotations

from dp_erm_bench.runner.case import Case
from dp_erm_bench.runner.tasks.base import Study

Wanted = Case | Study
