"""Streams and connections are cut out of their files, and every other byte stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.connection.cutting import plan_without_connection, plan_without_stream
from elt_assets.connection.places import ConnectionPlace
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import StreamId

HEAD = """\
# Our shop
type: elt_assets.ConnectionComponent   # a connection
attributes:
  name: shop
  source: {connector: faker, config: {"a": 'b'}}
"""
TAIL = """\
  schedule: "0 6 * * *"   # each morning

# the end
"""
NOISE = ["", "    # a note", "# at the margin", "      ", "\t"[:0]]
BODIES = [
    "- name: {0}",
    "- {{name: {0}, sync_mode: incremental}}   # inline",
    "- name: {0}\n      primary_key:\n      - [id]\n      # between\n      fields: {{hash: [x]}}  # why",
    "- name: {0}\n      filter:\n        - text: |\n            # no comment\n            line\n",
    "-   sync_mode: full_refresh\n        name: {0}",
    "- name: >-\n        {0}\n",
    '- "name": "{0}"\n      table:',
]
noise = st.lists(st.sampled_from(NOISE), max_size=2).map(lambda x: "".join(f"{y}\n" for y in x))


def place_at(
    folder: Path, text: str, document: int = 0, *, is_alone: bool = True
) -> ConnectionPlace:
    file = folder / "defs.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    return ConnectionPlace(file, "shop", document, is_alone=is_alone)


def _after(body: str, lines: str) -> str:
    """Return what follows a stream: empty lines behind a block of text are part of it."""
    return "".join(x for x in lines.splitlines(True) if x.strip() or not body.endswith("\n"))


@given(
    st.lists(st.tuples(st.sampled_from(BODIES), noise), min_size=2, max_size=5),
    st.integers(0, 4),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_only_the_removed_stream_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    items: list[tuple[str, str]],
    which: int,
    is_last: bool,
    line: str,
) -> None:
    number = which % len(items)
    texts = [(body.format(f"s{i}"), _after(body, after)) for i, (body, after) in enumerate(items)]
    parts = [f"    {body}".rstrip("\n") + f"\n{after}" for body, after in texts]
    rest = [
        after if i == number else part
        for i, (part, (_, after)) in enumerate(zip(parts, texts, strict=True))
    ]
    tail = "" if is_last else TAIL
    text, expected = (
        (HEAD + "  streams:\n" + "".join(x) + tail).replace("\n", line) for x in (parts, rest)
    )
    folder = tmp_path_factory.mktemp("defs")
    (change,) = plan_without_stream(place_at(folder, text), StreamId(f"s{number}"))
    assert change.text == expected
    change.make()
    left = yaml.safe_load((folder / "defs.yaml").read_text())["attributes"]["streams"]
    assert [stream["name"] for stream in left] == [
        f"s{i}" for i in range(len(items)) if i != number
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  streams: [{name: a}, {name: b}, {name: c}]\n", "  streams: [{name: a}, {name: c}]\n"),
        ("  streams: [{name: b}, {name: c}]\n", "  streams: [{name: c}]\n"),
        ("  streams: [{name: c}, {name: b}] # x\n", "  streams: [{name: c}] # x\n"),
        ("  streams:\n  - name: b # y\n  # z\n", "  streams:\n    [] # y\n  # z\n"),
        (
            "  streams:\n  - name: a\n  - name: b\n    namespace: null\n",
            "  streams:\n  - name: a\n",
        ),
        (
            "  streams:\n  - {name: b, namespace: x}\n  - {name: b}",
            "  streams:\n  - {name: b, namespace: x}\n",
        ),
    ],
)
def test_each_form_of_a_list_is_cut(tmp_path: Path, before: str, after: str) -> None:
    (change,) = plan_without_stream(place_at(tmp_path, HEAD + before), StreamId("b"))
    assert change.text == HEAD + after


@pytest.mark.parametrize(
    "streams",
    [
        "  - name: b\n    fields: &f {hash: [x]}\n  - name: c\n    fields: *f\n",
        "  - &b\n    name: b\n  - <<: *b\n    name: c\n",
    ],
)
def test_a_stream_that_others_need_is_left(tmp_path: Path, streams: str) -> None:
    place = place_at(tmp_path, HEAD + "  streams:\n" + streams)
    with pytest.raises(ConfigError, match="another part of the file needs it"):
        plan_without_stream(place, StreamId("b"))


def test_a_stream_with_an_alias_is_cut(tmp_path: Path) -> None:
    text = (
        HEAD + "  streams:\n  - name: a\n    fields: &f {hash: [x]}\n  - name: b\n    fields: *f\n"
    )
    (change,) = plan_without_stream(place_at(tmp_path, text), StreamId("b"))
    assert change.text == text.removesuffix("  - name: b\n    fields: *f\n")


def test_overlays_are_cut_before_the_definition(tmp_path: Path) -> None:
    place = place_at(tmp_path, HEAD + "  streams:\n    - name: a\n    - name: b\n")
    overlay = "attributes:\n  streams:\n    - name: b  # here\n      table: t\n  # rest\n  schedule: null\n"
    (tmp_path / "defs.prod.yaml").write_text(overlay)
    (tmp_path / "defs.dev.yaml").write_text("attributes: {schedule: null}\n")
    changes = plan_without_stream(place, StreamId("b"))
    assert [change.path.name for change in changes] == ["defs.prod.yaml", "defs.yaml"]
    assert changes[0].text == "attributes:\n  streams:\n      []\n  # rest\n  schedule: null\n"
    for change in changes:
        change.make()
    with pytest.raises(ConfigError, match="does not have the stream 'b'"):
        plan_without_stream(place, StreamId("b"))


def test_a_connection_is_cut_out_of_a_file_with_several(tmp_path: Path) -> None:
    def document(name: str) -> str:
        return HEAD.replace("name: shop", f"name: {name}") + "  streams: [{name: a}]\n"

    head, others = "# All of them\n", [f"---\n{document(name)}" for name in ("crm", "erp")]
    shop = document("shop").removeprefix("# Our shop\n")
    place = place_at(tmp_path, f"{head}{shop}{''.join(others)}", is_alone=False)
    (tmp_path / "defs.prod.yaml").write_text(
        "attributes: {name: crm, schedule: null}\n---\n# ours\nattributes: {name: shop}\n"
    )
    (tmp_path / "defs.dev.yaml").write_text("attributes: {name: erp, schedule: null}\n")
    overlay, definition, catalog = plan_without_connection(place)
    assert overlay.text == "attributes: {name: crm, schedule: null}\n"
    assert (catalog.path.name, catalog.text) == ("catalog.shop.json", None)
    assert definition.text == f"{head}{''.join(others)}"
    middle = place_at(tmp_path, f"{others[0]}---\n{shop}{others[1]}", 1, is_alone=False)
    assert plan_without_connection(middle)[-2].text == "".join(others)
    last = place_at(tmp_path, f"{others[0]}---\n{shop}", 1, is_alone=False)
    assert plan_without_connection(last)[-2].text == others[0]


def test_the_files_of_a_connection_alone_are_removed(tmp_path: Path) -> None:
    place = place_at(tmp_path, HEAD)
    files = ["defs.prod.yaml", "catalog.json", "defs.yaml", "manifest.yaml"]
    for name in files:
        (tmp_path / name).touch()
    changes: list[Any] = plan_without_connection(place)
    for change in [*changes, *changes]:
        change.make()
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.yaml"]
