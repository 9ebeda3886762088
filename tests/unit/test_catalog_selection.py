from __future__ import annotations

import pytest

from mashbox.catalog.selection import choose, model_stem, part_names
from mashbox.errors import SelectionError

PARTS = tuple(f"big/M-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3))
REPO = [
    "README.md",
    "M-Q4_K_M.gguf",
    "M-UD-Q4_K_M.gguf",
    "M-Q4_K_S.gguf",
    "mmproj-M-Q4_K_M.gguf",
    "M-imatrix.gguf",
    *PARTS,
]


def test_part_names_from_any_part() -> None:
    assert part_names("big/M-Q8_0-00002-of-00003.gguf") == PARTS
    assert part_names("M-Q4_K_M.gguf") == ("M-Q4_K_M.gguf",)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("M-Q4_K_M.gguf", "M-Q4_K_M"), (PARTS[1], "M-Q8_0"), ("M.v0.3.GGUF", "M.v0.3"), ("plain", "plain")],
)
def test_model_stem(name: str, stem: str) -> None:
    assert model_stem(name) == stem


@pytest.mark.parametrize(
    ("wanted", "files"),
    [
        (None, ("M-Q4_K_M.gguf",)),
        ("q4_k_m", ("M-Q4_K_M.gguf",)),
        ("UD-Q4_K_M", ("M-UD-Q4_K_M.gguf",)),
        ("Q4_K_S", ("M-Q4_K_S.gguf",)),
        ("Q8_0", PARTS),
        ("M-UD-Q4_K_M.gguf", ("M-UD-Q4_K_M.gguf",)),
        (PARTS[2], PARTS),
    ],
)
def test_choose(wanted: str | None, files: tuple[str, ...]) -> None:
    assert choose(REPO, wanted, "o/r") == files


def test_the_only_model_needs_no_name() -> None:
    assert choose(["mmproj-x.gguf", "only-mxfp4.gguf"], None, "o/r") == ("only-mxfp4.gguf",)


@pytest.mark.parametrize(
    ("names", "wanted", "message"),
    [
        (
            ["a-Q8_0.gguf", "b-Q6_K.gguf"],
            None,
            "o/r has several models; choose one of: a-Q8_0.gguf, b-Q6_K.gguf.",
        ),
        (["a-Q8_0.gguf"], "Q4_0", "o/r has nothing that fits Q4_0; choose one of: a-Q8_0.gguf."),
        (["a-Q4_0.gguf"], "0", "nothing that fits 0"),
        (["a-Q8_0.gguf"], "b.gguf", "nothing that fits b.gguf"),
        (
            ["a-Q4_0.gguf", "b-Q4_0.gguf"],
            "Q4_0",
            "several models that fit Q4_0; choose one of: a-Q4_0.gguf, b-Q4_0.gguf",
        ),
        (["README.md", PARTS[0], PARTS[1]], None, "o/r has no complete GGUF model."),
        (["../../evil.gguf"], None, "no complete GGUF model"),
    ],
)
def test_no_clear_choice(names: list[str], wanted: str | None, message: str) -> None:
    with pytest.raises(SelectionError) as caught:
        choose(names, wanted, "o/r")
    assert message in str(caught.value)


def test_one_file_before_the_same_in_parts() -> None:
    names = ["m-mxfp4.gguf", "m-mxfp4-00001-of-00002.gguf", "m-mxfp4-00002-of-00002.gguf"]
    assert choose(names, "mxfp4", "o/r") == ("m-mxfp4.gguf",)
