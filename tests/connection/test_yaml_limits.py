"""A file of YAML is refused before it is loaded if it stands for a very large or a very deep document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.connection import find_refused_files, load_connection, yaml_files
from elt_assets.connection.yaml_files import check_limits
from elt_assets.errors import ConfigError


def aliases(levels: int, width: int, last: str = "x") -> str:
    lines = [f"a0: &a0 [{', '.join([last] * width)}]"]
    lines += [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)
    ]  # fmt: skip
    return "\n".join(lines)


HOSTILE = {
    "aliases of aliases": (aliases(10, 10), "more than 500,000 values"),
    "merged mappings": (
        "m0: &m0 {a: 1}\n"
        + "\n".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 9)),
        "more than 500,000 values",
    ),
    "aliases of deep values": (aliases(101, 1), "more than 100 levels deep"),
    "deep lists": ("a: " + "[" * 100_000 + "]" * 100_000, "more than 100 levels deep"),
    "deep mappings": ("{a: " * 10_000 + "1" + "}" * 10_000, "more than 100 levels deep"),
    "a value in itself": ("a: &a [*a]", r"the alias \*a without a complete value"),
    "many values": ("[" + "1," * 500_001 + "]", "more than 500,000 values"),
}


@pytest.mark.parametrize(("text", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "defs.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"defs\.yaml cannot be loaded: .*{problem}"):
        load_connection(tmp_path)
    assert [folder for folder, _ in find_refused_files(tmp_path)] == [tmp_path]


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['true']", "!!python/name:os.system"]
)
def test_a_tag_of_python_is_refused(tmp_path: Path, tag: str) -> None:
    (tmp_path / "defs.yaml").write_text(f"a: {tag}\n")
    with pytest.raises(ConfigError, match="could not determine a constructor for the tag"):
        load_connection(tmp_path)


def test_a_number_that_python_cannot_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").write_text(f"a: {'9' * 10_000}\n")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_connection(tmp_path)


def size_and_depth(value: Any) -> tuple[int, int]:
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 1, 1
    sizes = [size_and_depth(part) for part in parts]
    return 1 + sum(n for n, _ in sizes), 1 + max((d for _, d in sizes), default=0)


_VALUES = st.recursive(
    st.integers() | st.text("ab", max_size=3),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text("ab"), parts, max_size=4),
    max_leaves=20,
)


@given(_VALUES, _VALUES)
def test_the_size_is_that_of_the_loaded_document(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any
) -> None:
    document = {"first": first, "again": [first, second, second]}  # the same objects: as aliases
    file = tmp_path_factory.mktemp("yaml") / "defs.yaml"
    file.write_text(yaml.safe_dump(document))
    values, depth = size_and_depth(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_files, "MAX_VALUES", values)
        patch.setattr(yaml_files, "MAX_DEPTH", depth)
        check_limits(file)
        patch.setattr(yaml_files, "MAX_VALUES", values - 1)
        with pytest.raises(ConfigError, match="stands for more than"):
            check_limits(file)
        patch.setattr(yaml_files, "MAX_VALUES", values)
        patch.setattr(yaml_files, "MAX_DEPTH", depth - 1)
        with pytest.raises(ConfigError, match="levels deep"):
            check_limits(file)
