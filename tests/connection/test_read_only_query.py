"""The query of an `sql` rule reads its own table alone: what else Spark could do is refused at load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elt_assets.connection.read_only_query import FUNCTIONS, check_query
from tests.connection.test_connection import declare, refusal

ALLOWED = [
    "select id from {table} group by id having count(*) > 1",
    "select id from {table};",
    "from {table} select id where id > 10L",
    "select * from {table} where at < current_timestamp - interval 1 day and day > date'2020-01-01'",
    "select id from {table} where `strange name` = 1 union all (select id from {table})",
    "select a.id from {table} a join (select * from {table}) b using (id) where exists (select 1)",
    "with x as (select * from {table}), y as (select * from x) select y.id from y join x on x.id = y.id",
    "with x as (with y as (select * from {table}) select * from y) select * from x",
    "select id, sum(id) over (partition by id order by at) as s from {table} qualify s > 1",
    "select id from {table} lateral view explode(tags) e as tag where tag is distinct from 'it\\'s'",
    "select transform(tags, x -> x || 'a') from {table} where extract(year from at) > 2000 order by (id)",
    "select percentile_approx(id, 0.5) filter (where id > 1) from {table} group by day",
]
REFUSED = {
    "programs": [
        "select transform(id) using 'cat' from {table}",
        "map id using 'cat' from {table}",
        "from {table} map id using 'cat' as b",
        "from {table} reduce id using 'cat' as b",
        "select reflect('java.lang.System', 'getProperty', 'user.home') from {table}",
        "select try_reflect('java.lang.System', 'exit', 1) from {table}",
        "select java_method('java.lang.System', 'getenv') from {table}",
        "select Reflect /**/\n('java.lang.System', 'getenv') from {table}",
        "select `reflect`('java.lang.System', 'getenv') from {table}",
        "select \"reflect\"('java.lang.System', 'getenv') from {table}",
        "select builtin.reflect('java.lang.System', 'getenv') from {table}",
        "select identifier('reflect')('java.lang.System', 'getenv') from {table}",
        "select id from {table} lateral view reflect('java.lang.System', 'getenv') r",
        "select my_function(id) from {table}",
        "select 1abc(id) from {table}",
        "select spark_catalog.default.upper(id) from {table}",
    ],
    "files": [
        "select * from {table}, text.`/etc/hostname`",
        "select * from {table} join lateral text.`/etc/hostname`",
        "select (select max(value) from json.`/etc/x`) from {table}",
        "select * from {table} where id in (select _c0 from csv.`/etc/passwd`)",
        "select id from {table} where id = 1 -- \\\n union all select value from text.`/etc/x`",
        "select * from read_files('/etc'), {table}",
        "select from_protobuf(id, 'Message', '/etc/x') from {table}",
        "select input_file_name() from {table}",
        "select * from delta.`{table}`",
    ],
    "other tables": [
        "select * from {table} union select * from shop.users",
        "select * from {table} t, users",
        "select * from {table} natural join users",
        "select * from {table}, lateral users",
        "select * from {table} |> join users",
        "select * from {table} where id in (table users)",
        "select * from {table} union all (table users)",
        "with a as (select * from {table}), b as (table users) select * from b",
        "select * from identifier('users'), {table}",
        "select * from stream(users), {table}",
        "select * from range(10), {table}",
        "select * from `{table}.x`",
        "with a as (select * from b), b as (select * from {table}) select * from a",
        "with a as (with b as (select * from {table}) select * from b) select * from b",
        "with users as (select * from users) select * from users, {table}",
        "with X as (select * from {table}) select * from x",
        "select * from {table} pivot (max(id) for id in (select * from users))",
    ],
    "settings and variables": [
        "select '${env:TOKEN}' from {table}",
        "select id from {table} where id = ${system:user.home}",
        "set spark.sql.ansi.enabled = {table}",
        "select version() from {table}",
    ],
    "no query": [
        "drop view {table}",
        "explain select * from {table}",
        "insert into users select * from {table}",
        "create table x as select * from {table}",
        "select * from {table}) t, (select * from users",
        "select '{table}'; drop table users",
        "select * from {table} where (",
        "(" * 5000 + "select * from {table}" + ")" * 5000,
        "{table}",
    ],
}


@pytest.mark.parametrize("query", [query for queries in REFUSED.values() for query in queries])
def test_a_query_that_could_do_more_than_read_its_table_is_refused_at_load(
    query: str, tmp_path: Path
) -> None:
    text = refusal(tmp_path, declare({"checks": {"sql": {"name": "q", "query": query}}}))
    assert "users" in text
    assert "query" in text
    assert re.search(r"own table alone|cannot be parsed|is not possible", text)


@pytest.mark.parametrize("query", ALLOWED)
def test_a_query_that_is_allowed_runs(query: str, spark: SparkSession) -> None:
    """What is checked is what runs: the text without its comments."""
    schema = "id bigint, at timestamp, day date, `strange name` int, tags array<string>"
    spark.createDataFrame([], schema).createOrReplaceTempView("rows_of_the_test")
    text = check_query(query.replace("{table}", "{table} -- 'a comment\n", 1))
    assert "comment" not in text
    assert spark.sql(text.replace("{table}", "rows_of_the_test")).count() == 0


def test_each_allowed_function_computes_from_its_arguments_alone(spark: SparkSession) -> None:
    """A function of Spark that is new, or that reaches out by its name, is not in the list."""
    reaching = re.compile(
        "reflect|method|file|proto|avro|xml|xpath|catalog|database|user|version|python|collations"
    )
    spark_functions = {row[0] for row in spark.sql("show functions").collect()}
    assert not [name for name in FUNCTIONS if reaching.search(name)]
    unknown = FUNCTIONS - spark_functions
    assert unknown <= {"try_cast", "varchar"}  # parts of the grammar
