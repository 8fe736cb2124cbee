"""The statements of docs/how-to/keys_for_sql.md, as far as sqlglot knows them; no engine of a vendor is asked."""

import re

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from tests.support.examples import ROOT

PAGE = (ROOT / "docs" / "how-to" / "keys_for_sql.md").read_text()


def statements(engine: str) -> str:
    """The SQL below the heading of an engine."""
    section = PAGE.partition(f"\n## {engine}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"```sql\n(.+?)```", section, re.DOTALL)
    return text


def test_snowflake_loads_the_keys_and_refers_to_them():
    """sqlglot knows no privacy domains: it leaves that statement as one command."""
    load, domain = sqlglot.parse(statements("Snowflake"), dialect="snowflake")
    assert isinstance(load, exp.Create) and load.this.name == "released"
    assert load.expression.named_selects == ["item"]
    assert isinstance(domain, exp.Command)
    assert re.fullmatch(
        r"TABLE logs MODIFY COLUMN query SET PRIVACY DOMAIN REFERENCES released\(item\)",
        domain.expression.strip(),
    )


def test_the_groups_of_bigquery_are_the_released_keys():
    """Its privacy clause, which sqlglot does not know, is taken off; DuckDB runs the rest on data with other keys."""
    clause = re.compile(r"WITH DIFFERENTIAL_PRIVACY\s+OPTIONS \((.+?)\)", re.DOTALL)
    text = statements("BigQuery")
    options = dict(re.findall(r"(\w+) = ([\w.-]+)", clause.search(text)[1]))
    assert (
        options["group_selection_strategy"] == "PUBLIC_GROUPS" and options["privacy_unit_column"] == "user_id"
    )
    (query,) = sqlglot.transpile(clause.sub("", text), read="bigquery", write="duckdb")
    with duckdb.connect() as database:
        database.register("logs", pa.table({"user_id": [1, 1, 2], "query": ["tea", "private", "tea"]}))
        database.register("released", pa.table({"item": ["tea", "coffee"]}))
        assert sorted(row[0] for row in database.sql(query).fetchall()) == ["coffee", "tea"]
