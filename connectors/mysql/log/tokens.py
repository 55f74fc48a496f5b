"""Tokens of a statement, as the server reads them: names, texts and signs, without comments.

What the server has not executed of a conditional comment (`/*!50000 … */`, `/*M! … */`), it does not write
into its log as one: all that is in such a comment is a part of the statement.

Spec: MySQL, Comments; String Literals; Schema Object Names. MariaDB, Comment Syntax; Identifier Names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from connectors.mysql.log.forms import TableName, fold_name

WORD, QUOTED, TEXT, DOUBLE, SIGN = "word", "quoted", "text", "double", "sign"
_ANSI_QUOTES, _NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
"""Bits of `sql_mode`."""
_ESCAPED, _PLAIN = r"(?:[^{0}\\]|{0}{0}|\\.)*", r"(?:[^{0}]|{0}{0})*"
_COMMENT = r"\s+|\#[^\n]*|--(?=[\x00-\x20]|\Z)[^\n]*|/\*(?!!|M!).*?\*/"
_END = "*/"


class NotUnderstood(ValueError):
    """Error raised if a statement has a form that is unknown here, or is no statement."""


@dataclass(frozen=True)
class Token:
    """A token.

    `kind`: WORD (without quotes), QUOTED (a name), TEXT, DOUBLE (in double quotes: a text, or a name), SIGN.
    `text`: without its quotes.
    """

    kind: str
    text: str

    @property
    def keyword(self) -> str:
        """The text in upper case; empty if it is in quotes, and so no keyword."""
        return self.text.upper() if self.kind in (WORD, SIGN) else ""

    @property
    def is_name(self) -> bool:
        """Whether it can be the name of a table."""
        return self.kind in (WORD, QUOTED, DOUBLE)


def split_tokens(text: str, sql_mode: int = 0) -> list[Token]:
    """Return the tokens of a statement.

    Args:
        sql_mode: that of the session that ran it, as its bits.

    Raises:
        NotUnderstood: a quote or a comment has no end.
    """
    is_ansi = bool(sql_mode & _ANSI_QUOTES)
    pattern = _make_pattern(escapes=not sql_mode & _NO_BACKSLASH_ESCAPES, is_ansi=is_ansi)
    tokens: list[Token] = []
    place, is_conditional = 0, False
    while place < len(text):
        if is_conditional and text.startswith(_END, place):
            is_conditional = False
            place += len(_END)
            continue
        match = pattern.match(text, place)
        if match is None:
            raise NotUnderstood("a quote or a comment has no end")
        kind, part, place = str(match.lastgroup), match[0], match.end()
        if kind == "condition":
            is_conditional = True
        elif kind in (QUOTED, TEXT, DOUBLE):
            kind = QUOTED if kind == DOUBLE and is_ansi else kind
            tokens.append(Token(kind, part[1:-1].replace(part[0] * 2, part[0])))
        elif kind in (WORD, SIGN):
            tokens.append(Token(kind, part))
    while tokens and tokens[-1] == Token(SIGN, ";"):
        tokens.pop()
    return tokens


@cache
def _make_pattern(*, escapes: bool, is_ansi: bool) -> re.Pattern[str]:
    single = (_ESCAPED if escapes else _PLAIN).format("'")
    double = (_ESCAPED if escapes and not is_ansi else _PLAIN).format('"')
    return re.compile(
        rf"(?P<comment>{_COMMENT})|(?P<condition>/\*M?!(?:\d{{5,6}})?)"
        rf"|(?P<{WORD}>[0-9A-Za-z_$\u0080-\U0010ffff]+)|(?P<{QUOTED}>`(?:[^`]|``)+`)"
        rf"|(?P<{TEXT}>'{single}')|(?P<{DOUBLE}>\"{double}\")|(?P<{SIGN}>(?!/\*)[^`'\"])",
        re.DOTALL | re.ASCII,
    )


def split_at_commas(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the parts of a list that is divided by commas, but for those in parentheses."""
    depth, start = 0, 0
    for place, token in enumerate(tokens):
        if token.keyword == "(":
            depth += 1
        elif token.keyword == ")":
            depth -= 1
        elif token.keyword == "," and not depth:
            yield tokens[start:place]
            start = place + 1
    if start < len(tokens):
        yield tokens[start:]


class TokenReader:
    """Reads the tokens of a statement one after another.

    Args:
        database: that of the session, in which names without one are.
        folds: whether the server compares names of tables without regard to case.
    """

    def __init__(self, tokens: Sequence[Token], database: str, *, folds: bool):
        self._tokens, self._database, self._folds = tokens, database, folds
        self._place = 0

    @property
    def rest(self) -> Sequence[Token]:
        """The tokens that are not read yet."""
        return self._tokens[self._place :]

    @property
    def keyword(self) -> str:
        """The next token as a keyword; empty if it is none, or there is none."""
        return self._tokens[self._place].keyword if self._place < len(self._tokens) else ""

    @property
    def is_end(self) -> bool:
        return self._place == len(self._tokens)

    def take(self, *keywords: str) -> bool:
        """Read some keywords if they come next, one after another. Return whether they did."""
        tokens = self._tokens[self._place : self._place + len(keywords)]
        if tuple(token.keyword for token in tokens) != keywords:
            return False
        self._place += len(keywords)
        return True

    def take_all(self, keywords: Collection[str]) -> bool:
        """Read keywords of a set, in any order, as long as there are any. Return whether there were any."""
        start = self._place
        while self.keyword and self.keyword in keywords:
            self._place += 1
        return self._place > start

    def take_wait(self) -> None:
        """Read how long a statement waits for a lock."""
        if not self.take("NOWAIT") and self.take("WAIT"):
            self._place += 1

    def skip(self) -> str:
        """Read a token, whatever it is, and return it as a keyword.

        Raises:
            NotUnderstood: there is none.
        """
        if self.is_end:
            raise NotUnderstood("without its end")
        keyword = self.keyword
        self._place += 1
        return keyword

    def fork(self, tokens: Sequence[Token]) -> TokenReader:
        """Return a reader of other tokens of the same session."""
        return TokenReader(tokens, self._database, folds=self._folds)

    def take_name(self) -> str:
        """Read a name.

        Raises:
            NotUnderstood: no name comes next.
        """
        if self.is_end or not self._tokens[self._place].is_name:
            raise NotUnderstood("without a name")
        self._place += 1
        return self._tokens[self._place - 1].text

    def take_database(self) -> str:
        """Read the name of a database.

        Raises:
            NotUnderstood: no name comes next.
        """
        return self._fold(self.take_name(), "")[0]

    def take_table(self) -> TableName:
        """Read the name of a table, with or without that of its database.

        Raises:
            NotUnderstood: no name comes next.
        """
        if self.take("."):
            return self._fold(self._database, self.take_name())
        name = self.take_name()
        return (
            self._fold(name, self.take_name())
            if self.take(".")
            else self._fold(self._database, name)
        )

    def list_names(self) -> set[TableName]:
        """Return all that may be names of tables in what is not read yet."""
        names = set()
        for name, after in self._list_pairs():
            names.add(self._fold(self._database, name))
            if after is not None:
                names.add(self._fold(name, after))
        return names

    def list_databases(self) -> set[str]:
        """Return all that may be names of databases in what is not read yet, and not of one table in them."""
        return {self._fold(name, "")[0] for name, after in self._list_pairs() if after is None}

    def _list_pairs(self) -> Iterator[tuple[str, str | None]]:
        """Yield the names that are not read yet, and the one after each if a dot is between them."""
        rest = self.rest
        for place, token in enumerate(rest):
            if token.is_name:
                after = rest[place + 1 : place + 3]
                is_pair = len(after) == 2 and after[0].keyword == "." and after[1].is_name
                yield token.text, after[1].text if is_pair else None

    def _fold(self, database: str, name: str) -> TableName:
        return fold_name((database, name), folds=self._folds)
