"""Top-k selection on a histogram: known-domain mechanisms, limited domain, noisy counts, error measures.

Pure mathematics on numpy arrays, no Beam but in `transforms`. Every mechanism maps (counts, fingerprints, key) to
positions in rank order, and the answer is a function of the histogram and the key: not of the order of items, and not
of how often it is computed.
"""
