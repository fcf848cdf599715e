"""The import table is the architecture: who may import whom, and other rules that a reader can check by eye."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("app.py", "mha_core", "mha_view", "pages", "tests", "bench", "scripts")
OUR_PACKAGES = {"app", "mha_core", "mha_view", "pages", "tests", "bench", "scripts"}
CORE_LIBRARIES = {"torch", "numpy", "jaxtyping", "safetensors"}
HUB_LIBRARIES = {"transformers", "tokenizers", "huggingface_hub", "gguf", "accelerate"}
MAX_PAGE_LINES = 80

# Names of other people's libraries that carry the word; nothing of ours may.
FOREIGN_NAMES = {
    "add_argument_group",  # argparse
    "add_mutually_exclusive_group",  # argparse
    "groupby",  # itertools and pandas
    "group",  # re.Match
    "groups",  # re.Match
    "groupdict",  # re.Match
    "param_groups",  # torch.optim
    "legendgroup",  # plotly, a key of a trace
    "start_new_process_group",  # subprocess
    "process_group",  # subprocess
    "killpg",  # os
    "xdist_group",  # pytest-xdist, a mark
}


def files(room: str) -> list[Path]:
    path = ROOT / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists()


def names_of(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def modules(imported: ast.AST) -> list[str]:
    """The absolute names that one import statement brings in."""
    if isinstance(imported, ast.Import):
        return [alias.name for alias in imported.names]
    if isinstance(imported, ast.ImportFrom):
        assert imported.level == 0, "imports are absolute, so that this table can be read off them"
        return [f"{imported.module}.{alias.name}" for alias in imported.names]
    return []


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Every import of a file, and whether it stands inside a function."""
    tree = ast.parse(path.read_text())
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        for module in modules(node):
            yield module, id(node) in inside


def offences(room: str, forbidden: set[str]) -> list[str]:
    def within(module: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in forbidden)

    found = [(path, module) for path in files(room) for module, _ in imports(path) if within(module)]
    return [f"{path.relative_to(ROOT)} imports {module}" for path, module in found]


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("mha_core", {"streamlit", "plotly", "pandas", "mha_view", "pages", "app"}),
        ("mha_view", {"pages", "app"}),
        ("mha_view/figures", {"streamlit", "torch", "pages"}),
        ("pages", {"torch", "plotly"}),
    ],
)
def test_no_room_imports_what_its_row_of_the_table_forbids(room, forbidden):
    assert offences(room, forbidden) == []


@pytest.mark.parametrize("name", names_of(files("mha_core")))
def test_the_core_needs_four_libraries_and_the_hub_its_own_inside_functions(name):
    for module, inside in imports(ROOT / name):
        library = module.split(".")[0]
        if library in HUB_LIBRARIES:
            assert name.startswith("mha_core/hub/"), f"only mha_core/hub may import {library}"
            assert inside, f"{library} is imported inside functions only"
        else:
            assert library in sys.stdlib_module_names | CORE_LIBRARIES | {"mha_core"}, f"{name} imports {module}"


@pytest.mark.parametrize(
    "module", ["mha_core", "mha_core.config", "mha_core.text", "mha_core.masks", "mha_core.kv_size"]
)
def test_light_modules_import_without_torch(module):
    """Knobs, sentences and byte counts answer where torch is not installed."""
    code = f"import sys; sys.modules['torch'] = None; import {module}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def identifiers(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Every identifier, and whether it may be somebody else's (an attribute or a keyword, not a name of ours)."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                yield name, False
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, False
            case ast.Attribute(attr=name):
                yield name, not isinstance(node.ctx, ast.Store)
            case ast.keyword(arg=str(name)):
                yield name, True
            case ast.alias(name=name, asname=own):
                yield from ((part, True) for part in name.split("."))
                yield own or "", False
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, False
            case ast.MatchMapping(rest=str(name)):
                yield name, False
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((name, False) for name in names)


def carries_the_word(source: str) -> list[str]:
    found = [(name, foreign) for name, foreign in identifiers(ast.parse(source)) if "group" in name.lower()]
    return [name for name, foreign in found if not (foreign and name in FOREIGN_NAMES)]


# The class whose name carries the published name of the mechanism, Grouped-Query Attention.
PUBLISHED_NAMES = {"GroupedQueryAttention"}


@pytest.mark.parametrize("name", names_of([path for room in ROOMS for path in files(room)]))
def test_no_identifier_carries_the_word_that_two_camps_use_in_opposite_senses(name):
    assert "group" not in Path(name).name
    assert set(carries_the_word((ROOT / name).read_text())) <= PUBLISHED_NAMES


@pytest.mark.parametrize(
    "source",
    ["n_groups = 1", "def group(): ...", "f(kv_groups=1)", "x.n_groups", "import a as groups", "class Group: ...",
     "def f(groups): ...", "from a import b as group", "self.param_groups = 1", "lambda group: 1", "for group in x: f"],
)  # fmt: skip
def test_the_search_for_the_word_finds_it(source):
    assert carries_the_word(source)


GLOBAL_STATE = {
    "manual_seed", "seed", "set_num_threads", "set_num_interop_threads", "set_default_dtype", "set_default_device",
    "set_rng_state", "set_grad_enabled", "use_deterministic_algorithms", "set_default_tensor_type", "set_printoptions",
    "set_float32_matmul_precision", "set_flush_denormal",
}  # fmt: skip
RANDOM_WITHOUT_GENERATOR = {"rand", "randn", "randint", "randperm", "normal", "multinomial", "bernoulli"}


def global_state_calls(source: str) -> list[str]:
    """Calls that set torch's state for everybody, or draw from everybody's generator."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        with_generator = any(keyword.arg == "generator" for keyword in node.keywords)
        # A call on a generator of one's own, torch.Generator().manual_seed(1), is the right way.
        if owner.split(".")[0] == "torch" and "Generator" not in owner and name in GLOBAL_STATE:
            found.append(f"{owner}.{name}")
        if owner == "torch" and name in RANDOM_WITHOUT_GENERATOR and not with_generator:
            found.append(f"{owner}.{name}")
        if owner in ("random", "np.random", "numpy.random") and name not in ("Random", "default_rng", "Generator"):
            found.append(f"{owner}.{name}")
    return found


@pytest.mark.parametrize("name", names_of([path for room in ("mha_core", "mha_view", "pages") for path in files(room)]))
def test_no_visitor_can_change_the_random_numbers_or_threads_of_another(name):
    if not name.startswith("mha_core/training/"):
        assert global_state_calls((ROOT / name).read_text()) == []


@pytest.mark.parametrize(
    "source",
    ["torch.manual_seed(1)", "torch.set_num_threads(1)", "torch.random.manual_seed(1)", "torch.randn(3)",
     "torch.backends.x.set_flush_denormal(True)", "np.random.rand(3)", "random.random()", "torch.cuda.manual_seed(1)"],
)  # fmt: skip
def test_the_search_for_global_state_finds_it(source):
    assert global_state_calls(source)
    assert not global_state_calls("torch.Generator().manual_seed(1); torch.randn(3, generator=g)")


def test_a_page_is_at_most_eighty_lines():
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in names_of(files("pages"))}
    assert {name: length for name, length in lengths.items() if length > MAX_PAGE_LINES} == {}


@pytest.mark.parametrize("name", names_of([path for room in ROOMS for path in files(room)]))
def test_every_exception_to_a_check_gives_its_reason_on_its_line(name):
    for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1):
        for sign in ("# no" + "qa", "# type: " + "ignore", "# pyright: " + "ignore"):
            if sign in line:
                assert " -- " in line.split(sign)[1], f"{name}:{number} gives no reason"


def test_shapes_are_checked_under_pytest_in_the_whole_core():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "--jaxtyping-packages=mha_core,tests.shapes" in settings["tool"]["pytest"]["ini_options"]["addopts"]
