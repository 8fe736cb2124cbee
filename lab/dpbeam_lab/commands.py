"""The commands that the lab adds to `dpbeam`, by the entry point in pyproject.toml."""

COMMANDS = {
    "tune": (
        "dpbeam_lab.cli.tune",
        "which method and settings to take: from public data (NOT PRIVATE), or from none",
    ),
    "evaluate": ("dpbeam_lab.cli.evaluate", "compare released items with the private data (NOT PRIVATE)"),
    "synth": ("dpbeam_lab.cli.synth", "generate synthetic (user, item) data"),
}
