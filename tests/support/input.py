"""Everything that an input holds, read in this process."""

from collections import Counter

import pyarrow as pa

from dpbeam.io.readers import read_complete, read_scattered
from dpbeam.io.rows import Counts
from dpbeam.io.sources import plan_units, preflight
from dpbeam.io.spec import InputSpec
from dpbeam.kernels import canonical
from dpbeam.kernels.canonical import Kinds


def pairs_spec(*patterns, **options) -> InputSpec:
    """Pairs in columns `user` and `item`."""
    return InputSpec.create(patterns, user_column="user", item_columns=["item"], **options)


def values(array, kinds):
    columns = [column.to_pylist() for column in canonical.decode(canonical.plain(array), kinds)]
    return columns[0] if len(columns) == 1 else list(zip(*columns))


def read(spec, split=None, target=1_000_000):
    """Everything that a spec reads: scattered input as a Counter of (user, item), complete input as a list of
    each user's sorted items, in order of users within blocks; and the counts of what was dropped."""
    summary = preflight(spec)
    spec, counts = summary.spec or spec, Counts()
    pairs, users = Counter(), []
    for unit in plan_units(summary.files, spec, split):
        if spec.complete_users:
            for _, batch in read_complete(unit, spec, summary.kinds, counts, target):
                items = values(batch.column("item"), summary.kinds.item)
                owners = batch.column("user").to_pylist()
                assert owners == sorted(owners)
                users += [
                    sorted(i for i, o in zip(items, owners) if o == user) for user in dict.fromkeys(owners)
                ]
        else:
            for batch in read_scattered(unit, spec, summary.kinds, counts):
                kinds = Kinds.of(batch.schema)
                users_by_row = canonical.plain(batch.column("user"))
                assert users_by_row.type == pa.large_binary()
                ids = values(users_by_row, [kinds.user])
                pairs.update(zip(ids, values(batch.column("item"), kinds.item)))
    return (users if spec.complete_users else pairs), {k: v for k, v in counts.items() if v}
