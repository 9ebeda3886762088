"""The limits of this machine, measured, and how near to them a result comes."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.errors import BenchError
from bench.model import Work

Matrix = npt.NDArray[np.float32]

_SOURCE = Path(__file__).with_name("limits.c")
_SIDE = 2048
_PASSES = 7


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates with all threads at once, in units per second. `int8_flops` is 0 on a CPU without VNNI."""

    read_bytes: float
    f32_flops: float
    int8_flops: float

    @property
    def flops(self) -> float:
        """The faster of the two ways to multiply."""
        return max(self.f32_flops, self.int8_flops)

    def decode_rate(self, work: Work, streams: int) -> float:
        """Most tokens per second: a step takes the longer of reading the weights and multiplying."""
        step = max(work.bytes_per_step / self.read_bytes, work.decode_flops(streams) / self.flops)
        return streams / step

    def prefill_rate(self, work: Work, tokens: int) -> float:
        """Most prompt tokens per second."""
        return tokens * self.flops / work.prefill_flops(tokens)


def measure_limits(threads: int, folder: Path) -> Limits:
    """Measure; takes some seconds. The helper program is compiled into `folder`."""
    helper = _compile(folder)
    return Limits(
        read_bytes=_run(helper, "read", threads),
        f32_flops=_f32_flops(),
        int8_flops=2 * _run(helper, "int8", threads),
    )


def _compile(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchError("Measuring the machine's limits needs a C compiler; please install gcc.")
    folder.mkdir(parents=True, exist_ok=True)
    helper = folder / "limits"
    flags = ["-O3", "-march=native", "-fopenmp"]
    subprocess.run([compiler, *flags, str(_SOURCE), "-o", str(helper)], check=True)
    return helper


def _run(helper: Path, what: str, threads: int) -> float:
    output = subprocess.run([helper, what, str(threads)], check=True, capture_output=True, text=True).stdout
    return float(output)


def _f32_flops() -> float:
    """NumPy's matrix product on all cores, the best of some: what tuned float code reaches."""
    left, right = (np.random.default_rng(seed).random((_SIDE, _SIDE), np.float32) for seed in (1, 2))
    out = np.empty_like(left)
    fastest = min(_timed_product(left, right, out) for _ in range(_PASSES))
    return 2.0 * _SIDE**3 / fastest


def _timed_product(left: Matrix, right: Matrix, out: Matrix) -> float:
    start = time.perf_counter()
    np.matmul(left, right, out=out)
    return time.perf_counter() - start
