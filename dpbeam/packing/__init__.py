"""Jointly private packing: scarce resources for many agents, prices for everybody, allocations for each alone."""
