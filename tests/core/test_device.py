"""The device is chosen in one place and has a name for the screen."""

import torch

from mha_core.device import best_device, cpu_name, device_name, machine_name


def test_there_is_a_device_and_it_has_a_name():
    assert best_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device_name(torch.device("cpu")) == "CPU"


def test_the_processor_is_named_as_it_names_itself(tmp_path):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2: fast\nmodel name\t: another\n")
    assert cpu_name(info) == "Some CPU @ 2: fast"
    assert machine_name(torch.device("cpu")) == f"CPU, {cpu_name()}"


def test_a_machine_without_that_file_still_has_a_name(tmp_path):
    assert cpu_name(tmp_path / "absent")
    (tmp_path / "other").write_text("Features: neon\n")
    assert cpu_name(tmp_path / "other")
