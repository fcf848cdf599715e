"""The device is chosen in one place and has a name for the screen."""

import torch

from mha_core.device import best_device, device_name


def test_there_is_a_device_and_it_has_a_name():
    assert best_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device_name(torch.device("cpu")) == "CPU"
