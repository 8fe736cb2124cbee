"""Counting users per item, exactly and with noise, for selections and for top-k alike."""

#: Column of a ranking: the place of an item, from 1.
RANK = "rank"
#: Columns of the output: a whole number of users, and its standard deviation, the same for all items.
NOISY_COUNT, DEVIATION = "noisy_count", "noisy_count_sd"
