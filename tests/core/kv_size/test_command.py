"""The command line: exit codes, one sentence, JSON, no torch, never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mha_core.kv_size.__main__ import main
from tests.core.kv_size.data import CASES, PLAIN, bad_bytes, bad_rows, config_of

ROOT = Path(__file__).parents[3]
KEYS = {
    "elements_per_token", "bytes_per_token", "bytes_per_token_growing", "layers_with_kv", "kv_heads", "head_dim",
    "total_bytes", "total_bytes_window_ignored", "caveats",
}  # fmt: skip


@pytest.fixture
def run(tmp_path, capsys):
    """Runs the command on a config (or bytes) in a file; (exit code, standard output, standard error)."""

    def one(config, *options):
        path = tmp_path / "config.json"
        path.write_bytes(config if isinstance(config, bytes) else json.dumps(config).encode())
        code = main([str(path), *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return one


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_json_holds_the_figures_of_the_case(run, case):
    code, out, err = run(case.config, "--json", "--context", "32768")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found) >= KEYS
    expected = case.expected
    assert found["total_bytes"] == expected["total_bytes_bf16_at"]["32768"]
    assert found["bytes_per_token"] == expected["bytes_per_token_bf16"]
    assert found["bytes_per_token_growing"] == expected["bytes_per_token_bf16_growing"]
    assert (found["kv_heads"], found["head_dim"]) == (expected["kv_heads"], expected["head_dim"])


@pytest.mark.parametrize("row", bad_rows(), ids=lambda row: row["file"])
def test_bad_input_has_one_sentence_and_exit_code_two_or_its_value(run, row):
    code, out, err = run(bad_bytes(row["file"]), "--json")
    assert code == {"error": 2, "value": 0, "warn": 0}.get(row["outcome"], code)
    if code == 2:
        assert out == ""
        assert err.count("\n") == 1
        assert len(err) < 500
    else:
        assert json.loads(out)["bytes_per_token"] == row["bytes_per_token_bf16"]


def test_gemma_3_is_shown_with_units_and_exact_bytes(run):
    _, out, _ = run(config_of("gemma3-27b-nested-no-pattern"), "--context", "131072")
    assert "10.41 GiB (11,173,625,856 B)" in out
    assert "62.00 GiB (66,571,993,088 B)" in out
    assert "52 sliding layers" in out
    assert "10 full layers" in out
    assert " GB" not in out


def test_batch_dtype_and_engine_count(run):
    plain = json.loads(run(PLAIN, "--json", "--context", "17")[1])
    more = json.loads(run(PLAIN, "--json", "--context", "17", "--batch", "3", "--dtype", "f32")[1])
    assert more["total_bytes"] == 6 * plain["total_bytes"]
    assert json.loads(run(PLAIN, "--json", "--context", "17", "--engine", "vllm")[1])["total_bytes"] == 4_194_304


def test_the_limit_of_the_model_is_the_context_where_none_is_given(run):
    assert json.loads(run(PLAIN, "--json")[1])["context"] == 131_072
    unlimited = {name: value for name, value in PLAIN.items() if name != "max_position_embeddings"}
    assert json.loads(run(unlimited, "--json")[1])["context"] == 131_072


@pytest.mark.parametrize("context", ["0", "1", "10000000"])
def test_contexts_from_nothing_to_ten_million(run, context):
    assert run(PLAIN, "--context", context)[0] == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [(("--context", "-1"), "--context"), (("--context", "9" * 5000), "--context"), (("--batch", "nan"), "--batch"),
     (("--batch", "2.5"), "--batch"), (("--dtype", "int3"), "int3"), (("--engine", "abacus"), "abacus")],
    ids=str,
)  # fmt: skip
def test_a_wrong_option_has_one_sentence(run, options, name):
    code, out, err = run(PLAIN, *options)
    assert (code, out) == (2, "")
    assert name in err
    assert len(err) < 400


def test_a_model_without_a_cache_is_explained(run):
    for name in ("bert-encoder-only", "mamba-130m-no-kv"):
        code, out, _ = run(config_of(name))
        assert code == 0
        assert "keeps no KV cache" in out


@pytest.mark.parametrize("name", ["", "/no/such/file", "\0", "."])
def test_a_file_that_cannot_be_read_has_one_sentence(capsys, name):
    assert main([name]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_as_a_command_it_needs_no_torch_and_reads_standard_input():
    code = (
        "import sys, runpy; sys.modules.update(torch=None, numpy=None, jaxtyping=None); "
        "sys.argv = ['kv_size', '-', '--json']; runpy.run_module('mha_core.kv_size', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(PLAIN).encode(), capture_output=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["bytes_per_token"] == 131_072


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_a_name_in_any_script_never_breaks_the_terminal(encoding):
    config = json.dumps({**PLAIN, "model_type": "日本\ud800\x1b[2J"})
    done = subprocess.run(
        [sys.executable, "-m", "mha_core.kv_size", "-"],
        input=config.encode(), capture_output=True, cwd=ROOT, check=False, env={"PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout


def test_every_module_imports_without_torch_and_numpy():
    names = sorted(path.stem for path in (ROOT / "mha_core" / "kv_size").glob("[a-z]*.py"))
    imports = "; ".join(f"import mha_core.kv_size.{name}" for name in names)
    code = f"import sys; sys.modules.update(torch=None, numpy=None, jaxtyping=None); {imports}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
