"""`mashbox` with another backend: `python -m tests.soak.serve BACKEND run MODEL ...`."""

from __future__ import annotations

import sys
from functools import partial
from unittest.mock import patch

from mashbox import cli
from mashbox.config import WorkerConfig

if __name__ == "__main__":
    backend = sys.argv.pop(1)
    with patch.object(cli, "WorkerConfig", partial(WorkerConfig, backend=backend)):
        cli.app()
