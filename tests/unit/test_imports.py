"""Imports point one way, and the server process never loads native model code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import mashbox

ROOT = Path(mashbox.__file__).parent
ALLOWED = {
    "errors": set(),
    "config": set(),
    "logs": {"errors", "config"},
    "machine": {"errors"},
    "engine": {"errors", "config", "logs"},
    "catalog": {"errors", "config", "engine"},
    "chat": {"errors", "config", "logs", "engine"},
    "http": {"errors", "config", "logs"},
    "api": {"errors", "config", "logs", "engine", "chat", "http"},
    "server": {"errors", "config", "logs", "engine", "chat", "http", "api", "catalog"},
}


def imported(file: Path) -> set[str]:
    """The parts of mashbox a file imports, and `llama_cpp`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "mashbox":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mashbox."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name == "llama_cpp"}
    return found


def foreign(file: Path) -> set[str]:
    """The packages of others that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found - sys.stdlib_module_names - {"mashbox"}


def test_imports_point_one_way() -> None:
    wrong = []
    for file in ROOT.rglob("*.py"):
        part = file.relative_to(ROOT).with_suffix("").parts[0]
        if part in ALLOWED:
            extra = imported(file) - ALLOWED[part] - {part, "llama_cpp"}
            wrong += [f"{file.relative_to(ROOT)} imports {name}" for name in sorted(extra)]
    assert wrong == []


def test_only_one_module_imports_the_bindings() -> None:
    users = [file.name for file in ROOT.rglob("*.py") if "llama_cpp" in imported(file)]
    assert users == ["llama.py"]


def test_the_server_process_loads_no_native_model_code() -> None:
    native = ("llama_cpp", "llguidance", "numpy")
    script = f"import sys, mashbox.cli; print([m for m in {native} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_what_is_imported_is_declared_and_locked() -> None:
    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["llama"]]
    declared = {re.split(r"[^\w-]", requirement)[0] for requirement in wanted}
    lock = (ROOT.parents[1] / "requirements.lock").read_text().splitlines()
    locked = {line.partition("==")[0] for line in lock} | {"llama-cpp-python"}
    owners = packages_distributions()
    for name in sorted(set().union(*map(foreign, ROOT.rglob("*.py")))):
        owner = owners[name][0].lower().replace("_", "-")
        assert owner in declared & locked, f"{name} comes from {owner}"
