"""Positions in the log: sets of transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.mysql.log.position import (
    Gtid,
    MariaDbPosition,
    MySqlPosition,
    Position,
    find_common,
    parse_position,
)
from elt_assets.errors import ConfigError

SERVERS = [f"{n}c3cfbb0-e9de-11f1-a20e-02fc00000001" for n in range(3)]
NUMBERS = st.integers(1, 12)
MYSQL_SETS = st.sets(st.builds(Gtid, st.sampled_from(SERVERS), NUMBERS, st.just(0)))
MARIADB_SETS = st.dictionaries(st.sampled_from(["0", "5", "12"]), NUMBERS)


def make_mysql(gtids: set[Gtid]) -> MySqlPosition:
    position = MySqlPosition()
    for gtid in gtids:
        position.add(gtid)
    return position


def make_mariadb(domains: dict[str, int]) -> MariaDbPosition:
    return MariaDbPosition({domain: (number, 7) for domain, number in domains.items()})


def list_gtids(position: Position) -> set[Gtid]:
    sources = [Gtid(server, n) for server in SERVERS for n in range(1, 14)]
    sources += [Gtid(domain, n) for domain in ("0", "5", "12") for n in range(1, 14)]
    return {gtid for gtid in sources if gtid in position}


@given(MYSQL_SETS, MYSQL_SETS)
def test_a_position_of_mysql_is_the_set_of_its_transactions(
    left: set[Gtid], right: set[Gtid]
) -> None:
    here, there = make_mysql(left), make_mysql(right)
    assert list_gtids(here) == left
    assert list_gtids(here.union(there)) == left | right
    assert list_gtids(find_common([here, there])) == left & right
    assert here.is_within(there) == left.issubset(right)
    assert parse_position(str(here), is_mariadb=False) == here


@given(MARIADB_SETS, MARIADB_SETS)
def test_a_position_of_mariadb_has_all_transactions_up_to_its_last_ones(
    left: dict[str, int], right: dict[str, int]
) -> None:
    here, there = make_mariadb(left), make_mariadb(right)
    first, second = list_gtids(here), list_gtids(there)
    assert first == {Gtid(domain, n) for domain, last in left.items() for n in range(1, last + 1)}
    assert list_gtids(here.union(there)) == first | second
    assert list_gtids(find_common([here, there])) == first & second
    assert here.is_within(there) == first.issubset(second)
    assert parse_position(str(here), is_mariadb=True) == here


def test_what_is_common_is_a_position_of_its_own() -> None:
    here = make_mariadb({"0": 3})
    find_common([here]).add(Gtid("0", 9))
    assert Gtid("0", 4) not in here


def test_the_same_number_of_another_server_is_another_transaction() -> None:
    here, there = MariaDbPosition({"0": (5, 1)}), MariaDbPosition({"0": (5, 2)})
    assert not here.is_within(there)


def test_a_tag_of_mysql_is_refused() -> None:
    with pytest.raises(ConfigError, match="with the tag 'blue'"):
        MySqlPosition.parse(f"{SERVERS[0]}:1-5:blue:1-3")
