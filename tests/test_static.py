"""Mistakes that hang or mislead on many GPUs only are not in the template's text."""

import ast
import re
from collections.abc import Iterator

import pytest
from generated import TEMPLATE

SOURCES = sorted(
    path
    for path in (TEMPLATE / "project").rglob("*.py")
    if path.parent.name != "tests" and "__pycache__" not in path.parts
) + sorted((TEMPLATE / "presets").rglob("*.py"))
TEXTS = sorted(
    path
    for path in TEMPLATE.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
)
TREES = {str(path.relative_to(TEMPLATE)): ast.parse(path.read_text()) for path in SOURCES}

# Of torch, what waits for the other ranks; and what says of itself that it does.
TORCH_COLLECTIVES = {
    *("all_reduce", "all_gather", "all_gather_object", "all_to_all", "barrier", "broadcast"),
    *("broadcast_object_list", "gather", "gather_object", "monitored_barrier", "reduce"),
    *("reduce_scatter", "scatter", "scatter_object_list", "init_process_group", "DDP"),
}
SAYS_SO = re.compile(r"\bA\s+collective\b")

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def called(node: ast.AST) -> set[str]:
    """Return what is called: f for f(), .g for anything.g() but torch.g()."""
    names = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            if isinstance(call.func, ast.Name):
                names.add(call.func.id)
            elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) != "torch":
                names.add(f".{call.func.attr}")
    return names


def find_collectives(trees: dict[str, ast.Module]) -> set[str]:
    """Return what must be called on every rank: f for f(), .g for anything.g()."""
    functions = dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]()
    for tree in trees.values():
        for owner in ast.walk(tree):
            for node in ast.iter_child_nodes(owner):
                if isinstance(node, FUNCTION):
                    name = node.name
                    if isinstance(owner, ast.ClassDef):
                        name = owner.name if name == "__init__" else f".{name}"
                    functions.setdefault(name, []).append(node)

    found = {f"{dot}{name}" for name in TORCH_COLLECTIVES for dot in ("", ".")}
    for name, nodes in functions.items():
        if any(SAYS_SO.search(ast.get_docstring(node) or "") for node in nodes):
            found.add(name)
    while True:  # a function that calls one is one
        more = {n for n, nodes in functions.items() if any(called(node) & found for node in nodes)}
        if more <= found:
            return found
        found |= more


def asks_for_rank(test: ast.expr) -> bool:
    """Say whether a condition differs between ranks by their number."""
    words = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    words |= {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    words |= {f"{name}()" for name in called(test)}
    return bool(words & {"is_main", "rank", "local_rank", "get_rank()", ".get_rank()"})


def leaves(block: list[ast.stmt]) -> bool:
    """Say whether what comes after the `if` of this block is for the other ranks only."""
    return isinstance(block[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))


def for_some_ranks(tree: ast.AST) -> Iterator[ast.AST]:
    """Return the parts of a program that only some ranks run, or only after an error."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While)) and asks_for_rank(node.test):
            yield from (*node.body, *node.orelse)
        if isinstance(node, ast.IfExp) and asks_for_rank(node.test):
            yield from (node.body, node.orelse)
        if isinstance(node, ast.BoolOp) and asks_for_rank(node):
            yield node
        if isinstance(node, ast.Try):
            yield from (*node.handlers, *node.finalbody)
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            statements: list[ast.stmt] = block if isinstance(block, list) else []
            for number, statement in enumerate(statements, start=1):
                if isinstance(statement, ast.If) and asks_for_rank(statement.test):
                    yield from statements[number:] if leaves(statement.body) else ()


def misplaced(trees: dict[str, ast.Module]) -> list[str]:
    """Return the collectives that only some ranks call."""
    collectives = find_collectives(trees)
    return [
        f"{file}:{getattr(part, 'lineno', '?')} {name}"
        for file, tree in trees.items()
        for part in for_some_ranks(tree)
        for name in sorted(called(part) & collectives)
    ]


def test_no_collective_is_called_by_some_ranks_only() -> None:
    """The others would wait in it until they time out."""
    assert misplaced(TREES) == []


def test_the_collectives_are_known() -> None:
    """So that the test above cannot be green because it looks for nothing."""
    found = find_collectives(TREES)
    by_name = {"reduce_loss", "reduce_tensor", "sum_over_ranks", "gather_from_ranks", "Saver"}
    by_name |= {"on_main_process", "collect_state", "evaluate", "train", "train_step", "save"}
    assert by_name | {".barrier", ".run", ".compare_ranks"} <= found
    assert not {"print", "build_model", "load_config", "to_device"} & found


@pytest.mark.parametrize(
    "text",
    [
        "if world.is_main:\n    dist.barrier()",
        "if world.is_main:\n    save()\nelse:\n    world.print(reduce_loss(loss))",
        "if step and world.rank == 0:\n    tracker.log(sum_over_ranks(sums))",
        "def f():\n    if not world.is_main:\n        return\n    torch.distributed.all_reduce(x)",
        "world.is_main and dist.barrier()",
        "x = reduce_tensor(t) if dist.get_rank() == 0 else t",
        "try:\n    f()\nexcept ValueError:\n    barrier()",
        "try:\n    f()\nfinally:\n    dist.barrier()",
        "def mean(x):\n    return reduce_loss(x)\nif self.world.is_main:\n    mean(x)",
        'def gather_all(x):\n    """Gather. A\n    collective."""\nif is_main:\n    gather_all(x)',
    ],
)
def test_a_misplaced_collective_is_found(text: str) -> None:
    assert misplaced({**TREES, "sample.py": ast.parse(text)})


FORBIDDEN = {
    "a fixed choice of GPUs": r"(?m)(export|ENV|name:|^) *CUDA_VISIBLE_DEV|VISIBLE_DEVICES['\"]",
    "an option that only torch.distributed.launch passes": r"--local[-_]rank\b",
    "a launcher that is deprecated": r"torch\.distributed\.launch\b",
    "a module that is deprecated": r"torch\.cuda\.amp\b",
    "a checkpoint that may run code": r"weights_only *= *False",
    "torch's usual port": r"\b29500\b",
    "a tensor on the current GPU, whichever that is": r"\.cuda\(",
    "DDP's output_device": r"\boutput_device\b",
    "a checkpoint of which nothing may be loaded": r"strict *= *False",
    "a search that each step pays for": r"find_unused_parameters *= *True",
}
SAMPLES = [
    "export CUDA_VISIBLE_DEVICES=0,1",
    'os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
    "CUDA_VISIBLE_DEVICES=0,1 exec python launch.py",
    "os.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')",
    "- name: CUDA_VISIBLE_DEVICES",
    'parser.add_argument("--local-rank")',
    "python -m torch.distributed.launch train.py",
    "scaler = torch.cuda.amp.GradScaler()",
    "torch.load(path, weights_only=False)",
    "MASTER_PORT=29500",
    "model.cuda()",
    "DDP(model, output_device=0)",
    "model.load_state_dict(state, strict=False)",
    "DDP(model, find_unused_parameters=True)",
]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_template_is_free_of(what: str) -> None:
    found = [path for path in TEXTS if re.search(FORBIDDEN[what], path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_forbidden_would_be_found(sample: str) -> None:
    assert [what for what, pattern in FORBIDDEN.items() if re.search(pattern, sample)]


def test_the_texts_are_all_there() -> None:
    names = {path.name for path in TEXTS}
    assert {"train.py", "launch.sh.jinja", "slurm.sbatch.jinja", "job.yaml.jinja"} <= names
    assert {"model.py", "data.py", "README.md.jinja", "Dockerfile"} <= names


def test_every_load_of_a_checkpoint_is_safe_and_into_host_memory() -> None:
    """Protects the two arguments of torch.load wherever it is called."""
    loads = [
        {option.arg: ast.unparse(option.value) for option in call.keywords}
        for tree in TREES.values()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.load"
    ]
    assert loads
    for options in loads:
        assert (options["map_location"], options["weights_only"]) == ("'cpu'", "True")
