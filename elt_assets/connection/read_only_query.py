"""What the SQL of a rule or of `elt erase --where` may do: compute from the rows of its own table, no more.

`checks` calls `check_query` for each `sql` rule when a connection is loaded; `elt erase` has its condition
from `check_condition`.

A query of Spark can run programs (`transform … using`, `reflect`), read files (``text.`/path` ``), other
tables and variables of the environment (`${env:NAME}`), partly while Spark only analyses it. So it is decided
from the text, before Spark sees it, and what is not known to be harmless is refused:

- a name before `(` is a keyword, or a function of Spark that computes a value from its arguments alone;
- a relation is the table of the rule, a part of the query that `with` names, or a subquery.

The parser is not Spark's own. What both could read in different ways is refused or left out of the text that
runs: comments, `${…}`, quoted and qualified names of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expr, Table

TABLE = "{table}"
"""Placeholder of the rows in the query of an `sql` rule."""
_STAND_IN = "elt_rows_of_the_rule"
"""Name of the table while a query is parsed."""
_FIRST = ("select", "with", "from", "(")
_NAME = re.compile(r"""[\w`'"]""")
"""What a token has that may be the name of a function: a letter, a digit, or a quote."""

_KEYWORDS = frozenset(
    """
    all and any array as asc between both by case cast cross cube desc distinct div else end escape
    except exists filter for from full group grouping having ilike in inner intersect interval is join
    lateral leading left like limit map minus not offset on or order outer over partition percent pivot
    recursive right rlike regexp rollup rows select semi anti sets some struct tablesample then trailing
    union unpivot using values when where
    """.split()  # noqa: SIM905
)
FUNCTIONS = frozenset(
    """
    abs acos acosh add_months aggregate any_value approx_count_distinct approx_percentile array
    array_agg array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove
    array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh
    assert_true atan atan2 atanh avg base64 bigint bin binary bit_and bit_count bit_get bit_length
    bit_or bit_xor bool_and bool_or boolean bround btrim cardinality cbrt ceil ceiling char char_length
    character_length chr coalesce collect_list collect_set concat concat_ws contains conv
    convert_timezone corr cos cosh cot count count_if covar_pop covar_samp crc32 csc cume_dist curdate
    current_date current_time current_timestamp current_timezone date date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank double element_at elt encode endswith
    equal_null every exp explode explode_outer expm1 extract factorial find_in_set first first_value
    flatten float floor forall format_number format_string from_base32 from_csv from_json from_unixtime
    from_utc_timestamp get get_json_object getbit greatest grouping_id hash hex histogram_numeric hmac
    hour hypot if ifnull initcap inline inline_outer instr int is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull json_array_length json_object_keys json_tuple kurtosis lag
    last last_day last_value lcase lead least len length levenshtein listagg ln localtime localtimestamp
    locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval
    make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask max max_by md5 mean median min min_by minute mod mode
    monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day now
    nth_value ntile nullif nullifzero nvl nvl2 octet_length overlay parse_json parse_url percent_rank
    percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer
    position positive pow power printf quarter radians raise_error rand randn random range rank reduce
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr
    regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat
    replace reverse rint round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant sec
    second sentences sequence session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned
    shuffle sign signum sin sinh size skewness slice smallint sort_array soundex space split split_part
    sqrt stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg substr
    substring substring_index sum tan tanh time time_diff time_trunc timestamp timestamp_micros
    timestamp_millis timestamp_seconds tinyint to_base32 to_binary to_char to_csv to_date to_json
    to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp
    to_varchar to_variant_object transform transform_keys transform_values translate trim trunc try_add
    try_avg try_cast try_divide try_element_at try_make_interval try_make_timestamp
    try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json try_parse_url
    try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex unix_date unix_micros
    unix_millis unix_seconds unix_timestamp upper url_decode url_encode uuid validate_utf8 var_pop
    var_samp varchar variance variant_explode variant_explode_outer variant_get weekday weekofyear
    width_bucket window window_time xxhash64 year zeroifnull zip_with
    """.split()  # noqa: SIM905
)
"""Functions of Spark that compute values from their arguments; they read, start and change nothing else."""


def check_query(query: str) -> str:
    """Return a query without its comments.

    Raises:
        ValueError: it does not read from its table, reads anything else, or calls a function that is not in
            `FUNCTIONS`. The message says what was found.
    """
    import sqlglot  # noqa: PLC0415 - takes 0.2 s, and only a rule with a query needs it

    if TABLE not in query:
        raise ValueError(f"it does not read from the table; write `from {TABLE}`")
    if "${" in query:
        raise ValueError(
            "`${` is not possible in it: Spark puts a variable there, also of the environment"
        )
    if _STAND_IN in query:
        raise ValueError(f"`{_STAND_IN}` is not possible in it")
    text = query.replace(TABLE, _STAND_IN).strip().rstrip(";")
    try:
        tokens = sqlglot.tokenize(text, read="spark")
        problem = next(_find_refused_tokens(text, tokens), None)
        if problem is None:
            (statement,) = sqlglot.parse(text, read="spark")
            assert statement is not None
            problem = next(_find_other_relations(statement), None)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        reason = (
            "it is too deep" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        )
        raise ValueError(f"it cannot be parsed as one query: {reason}") from None
    if problem is not None:
        raise ValueError(
            f"{problem}; a query reads the rows of its own table alone (`from {TABLE}`), by functions that "
            "compute values from them"
        )
    return _leave_out_comments(text, tokens).replace(_STAND_IN, TABLE)


_SELECT = f"select * from {TABLE} where (\n"  # noqa: S608 - what follows is checked


@dataclass(frozen=True)
class SqlCondition:
    """A condition on the columns of one row."""

    sql: str  # without comments
    columns: frozenset[str]  # the names of the top-level columns that it names
    literals: frozenset[str]  # the texts that it compares with
    # Columns that must have one of some values in each row that meets it: texts or integers.
    equal: Mapping[str, Sequence[str | int]]


def check_condition(text: str) -> SqlCondition:
    """Return a condition that tests one row by its own columns.

    Raises:
        ValueError: it is not one, names no column, or does what `check_query` refuses. The message says what
            was found.
    """
    import sqlglot  # noqa: PLC0415
    from sqlglot import exp  # noqa: PLC0415

    if TABLE in text:
        raise ValueError("it is a query, and not a condition")
    query = check_query(f"{_SELECT}{text}\n)")
    select = sqlglot.parse_one(query.replace(TABLE, _STAND_IN), read="spark")
    where = select.args.get("where")
    clauses = {name for name, value in select.args.items() if value} - {"expressions", "where"}
    if (
        where is None
        or not isinstance(where.this, exp.Paren)
        or not clauses <= {"from", "from_", "kind"}
    ):
        raise ValueError("it is not one condition; write what a `where` of SQL has")
    condition = where.this.this
    if next(condition.find_all(exp.Query), None) is not None:
        raise ValueError("it has a query in it; a condition tests one row by its own columns")
    if next(condition.find_all(exp.AggFunc, exp.Window), None) is not None:
        raise ValueError("it has a function of several rows; a condition tests one row")
    columns = frozenset(column.parts[0].name for column in condition.find_all(exp.Column))
    if not columns:
        raise ValueError("it names no column, so it is the same for all rows")
    literals = frozenset(literal.name for literal in condition.find_all(exp.Literal))
    return SqlCondition(
        query[len(_SELECT) : -2], columns, literals, dict(_find_equalities(condition))
    )


def _find_equalities(condition: Expr) -> Iterator[tuple[str, Sequence[str | int]]]:
    """Yield the columns that a condition compares with values on its top level."""
    from sqlglot import exp  # noqa: PLC0415

    for part in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        sides: Sequence[Expr] = ()
        if isinstance(part, exp.EQ):
            sides = (part.this, part.expression)
        elif isinstance(part, exp.In) and part.expressions:
            sides = (part.this, *part.expressions)
        columns = [side for side in sides if isinstance(side, exp.Column) and len(side.parts) == 1]
        values = [side for side in sides if isinstance(side, exp.Literal)]
        if len(columns) == 1 and len(values) == len(sides) - 1 > 0:
            is_known = all(value.is_string or value.is_int for value in values)
            if is_known:
                yield (
                    columns[0].name,
                    [value.name if value.is_string else int(value.name) for value in values],
                )


def _leave_out_comments(text: str, tokens: Sequence[Token]) -> str:
    """Return a text with a line break in place of each comment."""
    parts, end = [], 0
    for token in tokens:
        if token.start < end:  # a part of the token before, such as the type of `10L`
            continue
        gap = text[end : token.start]
        parts += ["\n" if gap.strip() else gap, text[token.start : token.end + 1]]
        end = token.end + 1
    return "".join(parts)


def _find_refused_tokens(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield a text for each token that makes more than a query, and for each call that is not allowed."""
    words = [text[token.start : token.end + 1] for token in tokens]
    if not words or words[0].lower() not in _FIRST or ";" in words:
        yield "it is not one query"
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        name = word.lower()
        if name == "using" and after != "(":
            yield "`using` without a list of columns runs a program"
        if name == "table":
            yield "`table` reads another table (a column of this name is written in backticks)"
        is_allowed = before != "." and name.split()[-1] in _KEYWORDS | FUNCTIONS
        if after == "(" and _NAME.search(word) and not is_allowed:
            yield f"{word[:100]!r} is not a function that it may call"


def _find_other_relations(statement: Expr) -> Iterator[str]:
    """Yield a text for each relation that is not the table of the rule, nor a part of the query."""
    from sqlglot import exp  # noqa: PLC0415

    relations = (exp.Table, exp.Subquery, exp.Values, exp.Lateral)
    for clause in statement.find_all(exp.From, exp.Join, exp.Lateral):
        kinds = (exp.Func, exp.Subquery) if isinstance(clause, exp.Lateral) else relations
        if not isinstance(clause.this, kinds):
            yield f"it reads from {str(clause.this)[:100]!r}"
    for table in statement.find_all(exp.Table):
        if not _is_own(table):
            yield f"it reads from {'.'.join(part.name for part in table.parts)[:100]!r}"


def _is_own(table: Table) -> bool:
    """Return whether a relation is the table of the rule, or a part of the query that `with` names.

    Such a part is visible in the query of its `with`, and in the parts that come after it there. Names are
    compared as they are written: in another case Spark may look for a table of that name.
    """
    if table.this.key != "identifier" or table.args.get("db"):
        return False
    if table.name == _STAND_IN:
        return True
    inner: Expr = table
    while (outer := inner.parent) is not None:
        if outer.key == "with":
            visible = outer.expressions[: outer.expressions.index(inner)]
            # Its query is outside of its parts, which see only the `with` of queries around it.
            inner = outer.parent or outer
        else:
            parts = outer.args.get("with_") or outer.args.get("with")  # the name until sqlglot 27
            visible = [] if parts is None else parts.expressions
            inner = outer
        if any(part.alias == table.name for part in visible):
            return True
    return False
