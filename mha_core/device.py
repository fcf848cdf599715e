"""The one place that chooses where tensors live."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

import torch

CPU_INFO = Path("/proc/cpuinfo")


def best_device() -> torch.device:
    """CUDA where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """The device in words, for the screen: "CPU", or the GPU's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def machine_name(device: torch.device) -> str:
    """The device with the model of its processor: "CPU, Intel(R) Xeon(R) Processor", or the GPU's own name."""
    return device_name(device) if device.type == "cuda" else f"{device_name(device)}, {cpu_name()}"


@lru_cache(maxsize=1)
def cpu_name(info: Path = CPU_INFO) -> str:
    """What the processor calls itself: Linux keeps it in a file, other systems tell Python."""
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, named), platform.processor() or platform.machine())
