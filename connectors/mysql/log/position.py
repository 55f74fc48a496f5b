"""Positions in the log by transactions (GTID), which hold on each server that has these transactions.

MariaDB numbers the transactions of a domain one after another: a position has the last number of each domain,
as in `0-1-100,5-2-7` (domain, server, number). MySQL numbers those of each server: a position has the ranges
of numbers of each server's UUID, as in `3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:8`.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elt_assets.errors import ConfigError


class Gtid(NamedTuple):
    """A transaction. `source`: the domain (MariaDB), or the server's UUID (MySQL); `server`: of MariaDB."""

    source: str
    number: int
    server: int = 0

    def __str__(self) -> str:
        if self.server:
            return f"{self.source}-{self.server}-{self.number}"
        return f"{self.source}:{self.number}"


class Position:
    """The transactions up to a point of the log."""

    def __contains__(self, gtid: object) -> bool:
        raise NotImplementedError

    def add(self, gtid: Gtid) -> None:
        """Add a transaction."""
        raise NotImplementedError

    def union(self, other: Any) -> Any:
        """Return the position that has the transactions of both."""
        raise NotImplementedError

    def intersection(self, other: Any) -> Any:
        """Return the position that has the transactions that both have."""
        raise NotImplementedError

    def is_within(self, other: Any) -> bool:
        """Return whether another position has all transactions of this one."""
        return bool(self.union(other) == other)


@dataclass
class MariaDbPosition(Position):
    """A position of MariaDB: by domain, the server and the number of the last transaction."""

    domains: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MariaDbPosition:
        """Return the position of a text.

        Raises:
            ValueError: it is none.
        """
        domains = {}
        for part in filter(None, text.split(",")):
            domain, server, number = part.strip().split("-")
            domains[str(int(domain))] = (int(number), int(server))
        return cls(domains)

    def __str__(self) -> str:
        ordered = sorted(self.domains.items(), key=lambda item: int(item[0]))
        return ",".join(f"{domain}-{server}-{number}" for domain, (number, server) in ordered)

    def __contains__(self, gtid: object) -> bool:
        assert isinstance(gtid, Gtid)
        return gtid.number <= self.domains.get(gtid.source, (0, 0))[0]

    def add(self, gtid: Gtid) -> None:
        self.domains[gtid.source] = (gtid.number, gtid.server)

    def union(self, other: MariaDbPosition) -> MariaDbPosition:
        domains = dict(self.domains)
        for domain, last in other.domains.items():
            if last[0] > domains.get(domain, (0, 0))[0]:
                domains[domain] = last
        return MariaDbPosition(domains)

    def list_beyond(self, other: MariaDbPosition) -> dict[str, Gtid]:
        """Return the last transactions that another position does not have, by domain."""
        return {
            domain: Gtid(domain, number, server)
            for domain, (number, server) in self.domains.items()
            if number > other.domains.get(domain, (0, 0))[0]
        }

    def intersection(self, other: MariaDbPosition) -> MariaDbPosition:
        common = self.domains.keys() & other.domains.keys()
        return MariaDbPosition(
            {name: min(self.domains[name], other.domains[name]) for name in common}
        )


Ranges = list[tuple[int, int]]
"""Ranges of numbers, in order, with the first number and the one after the last."""


@dataclass
class MySqlPosition(Position):
    """A position of MySQL: by server, the ranges of its transactions."""

    servers: dict[str, Ranges] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MySqlPosition:
        """Return the position of a text.

        Raises:
            ValueError: it is none.
            ConfigError: it has transactions with a tag.
        """
        servers: dict[str, Ranges] = {}
        for part in filter(None, re.split(r"[,\s]+", text)):
            server, *ranges = part.split(":")
            for entry in ranges:
                first, _, last = entry.partition("-")
                if not first.isdigit():
                    raise ConfigError(
                        f"the server has transactions with the tag {first!r}, whose log is not read",
                        guidance="set gtid_next to AUTOMATIC, without a tag, in all sessions that write",
                    )
                whole = (int(first), int(last or first) + 1)
                servers.setdefault(str(uuid.UUID(server)), []).append(whole)
        return cls({server: _merge(ranges) for server, ranges in servers.items()})

    def __str__(self) -> str:
        parts = []
        for server, ranges in sorted(self.servers.items()):
            texts = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in ranges]
            parts.append(":".join([server, *texts]))
        return ",".join(parts)

    def __contains__(self, gtid: object) -> bool:
        assert isinstance(gtid, Gtid)
        return any(a <= gtid.number < b for a, b in self.servers.get(gtid.source, ()))

    def add(self, gtid: Gtid) -> None:
        ranges = self.servers.setdefault(gtid.source, [])
        if ranges and ranges[-1][1] == gtid.number:
            ranges[-1] = (ranges[-1][0], gtid.number + 1)
        else:
            self.servers[gtid.source] = _merge([*ranges, (gtid.number, gtid.number + 1)])

    def union(self, other: MySqlPosition) -> MySqlPosition:
        names = self.servers.keys() | other.servers.keys()
        both = {name: [*self.servers.get(name, ()), *other.servers.get(name, ())] for name in names}
        return MySqlPosition({name: _merge(ranges) for name, ranges in both.items()})

    def intersection(self, other: MySqlPosition) -> MySqlPosition:
        common = self.servers.keys() & other.servers.keys()
        both = {name: _intersect(self.servers[name], other.servers[name]) for name in common}
        return MySqlPosition({name: ranges for name, ranges in both.items() if ranges})

    def encode(self) -> bytes:
        """Return the position as a replica sends it. Spec: MySQL, COM_BINLOG_DUMP_GTID."""
        parts = [struct.pack("<Q", len(self.servers))]
        for server, ranges in self.servers.items():
            parts.append(uuid.UUID(server).bytes + struct.pack("<Q", len(ranges)))
            parts += [struct.pack("<QQ", *entry) for entry in ranges]
        return b"".join(parts)


def parse_position(text: str, *, is_mariadb: bool) -> Position:
    """Return the position of a text, as the server writes it.

    Raises:
        ValueError: it is none.
    """
    return MariaDbPosition.parse(text) if is_mariadb else MySqlPosition.parse(text)


def find_common(positions: Sequence[Position]) -> Position:
    """Return a new position that has the transactions which all positions have."""
    common = positions[0]
    for position in positions:
        common = common.intersection(position)
    return common


def _merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: Ranges = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def _intersect(left: Ranges, right: Ranges) -> Ranges:
    pairs = [(max(a, c), min(b, d)) for a, b in left for c, d in right]
    return [(first, end) for first, end in sorted(pairs) if first < end]
