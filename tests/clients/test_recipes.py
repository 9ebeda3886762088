"""The recipes of docs/clients.md, run as they stand there."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.agents import MODEL_ID, Desk
from tests.clients.conftest import Box
from tests.clients.script import said
from tests.model_script import Rule

DOCUMENT = Path(__file__).parents[2] / "docs" / "clients.md"
ADDRESS = "http://127.0.0.1:8000"
NOT_RUN = "(not run by the tests)"


@dataclass(frozen=True)
class Recipe:
    """A section's blocks: one script for a shell, or one for Python, and how often it asks the question."""

    title: str
    shell: str
    python: str

    @property
    def questions(self) -> int:
        return (self.shell + self.python).count("Name three planets.")


def read_recipes() -> dict[str, Recipe]:
    """All sections that have something to run, by title."""
    recipes = {}
    for section in re.split(r"^## ", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0]
        blocks = {kind: _blocks(section, kind) for kind in ("sh", "python")}
        if any(blocks.values()):
            recipes[title] = Recipe(title, blocks["sh"], blocks["python"])
    return recipes


def _blocks(section: str, kind: str) -> str:
    return "\n".join(re.findall(rf"^```{kind}\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL))


RECIPES = read_recipes()


def test_which_recipes_are_run() -> None:
    run = {title for title in RECIPES if NOT_RUN not in title}
    assert run == {"Claude Code", "Codex", "Pi", "The openai library", "The anthropic library"}
    assert set(RECIPES) - run == {f"opencode {NOT_RUN}"}


@pytest.mark.parametrize("title", [title for title in RECIPES if NOT_RUN not in title])
def test_a_recipe_works(title: str, box: Box, desk: Desk) -> None:
    recipe = RECIPES[title]
    assert ADDRESS in recipe.shell + recipe.python
    assert MODEL_ID in recipe.shell + recipe.python
    box.play(Rule(said("Name three planets."), "Venus, Earth and Mars."))
    program = [sys.executable] if recipe.python else ["bash", "-euo", "pipefail"]
    script = (recipe.python or recipe.shell).replace(ADDRESS, desk.url)
    run = desk.run([*program, "-c", script], desk.environment())
    assert run.code == 0, run
    assert run.out.count("Venus, Earth and Mars.") == recipe.questions, run
