"""The core's tests run on one thread: their tensors are small, and several workers share the cores."""

import torch

torch.set_num_threads(1)
