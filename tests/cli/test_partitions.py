"""`elt partitions`: the partitions that a source has, with key and context."""

from __future__ import annotations

from tests.orchestration.ticking import instance_of
from tests.programs.scripted import script
from tests.programs.store_source import open_stores, stores
from tests.support.elt import Elt
from tests.support.project import Project


def test_each_partition_has_a_key_and_a_context(own: Project, elt: Elt) -> None:
    stores(own)
    open_stores(own, north=3, south=2)
    answer = elt.json("partitions", "shop", "orders")
    assert answer == {
        "connection": "shop",
        "stream": "orders",
        "partitions": [
            {"key": "north", "context": {"store": "north"}},
            {"key": "south", "context": {"store": "south"}},
        ],
        "warnings": [],
    }
    output = elt("partitions", "shop", "orders")
    assert '{"store": "south"}' in output and "2 partitions" in output
    with instance_of(own) as instance:
        assert not instance.get_dynamic_partitions("shop__orders")


def test_a_stream_need_not_be_configured_with_partitions(own: Project, elt: Elt) -> None:
    stores(own)
    own.amend("shop", streams=[{"name": "orders"}])
    open_stores(own)
    assert elt.json("partitions", "shop", "orders")["partitions"] == []
    assert "0 partitions" in elt("partitions", "shop", "orders")


def test_the_error_of_a_source_that_cannot_list_partitions_is_shown(own: Project, elt: Elt) -> None:
    stores(own)
    open_stores(own)
    own.reconfigure("shop", down=True)
    error = elt.refuse("partitions", "shop", "orders", code=1)
    assert error["failure_type"] == "transient_error"
    assert "the list of stores cannot be reached" in error["message"]


def test_a_tap_is_refused(own: Project, elt: Elt) -> None:
    script(own, [])
    own.amend("scripted", source={"tap": ["true"]})
    error = elt.refuse("partitions", "scripted", "things")
    assert "has no `partitions`: Singer taps do not support it" in error["message"]


def test_a_stream_that_the_catalog_lacks_is_refused(own: Project, elt: Elt) -> None:
    stores(own)
    assert "has no stream 'order'" in elt.refuse("partitions", "shop", "order")["message"]
