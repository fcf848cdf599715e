"""The one place that chooses where tensors live."""

from __future__ import annotations

import torch


def best_device() -> torch.device:
    """CUDA where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """The device in words, for the screen: "CPU", or the GPU's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
