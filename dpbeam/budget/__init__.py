"""Accounts of privacy budget over many runs: one per dataset, append-only, in SQLite or PostgreSQL.

A run reserves what it may cost before it reads, and its reservation counts as spent until its end is known:

    reserve --> publish --> commit
       |  \\--> takeover (a retry of the same release id; pays nothing)
       \\--> return (nothing was released)

Nothing leaves the staging folder before `publish` is in the account, and after it no other noise is ever drawn for the
release: a retry finishes what was begun. `account.py` is the machine, without any storage; `store.py` keeps entries and
serialises their writers; `history.py` composes what runs have cost.

The layer knows neither Beam nor files of output; `dpbeam.jobs.charge` joins it to runs.
"""
