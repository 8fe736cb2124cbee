"""What the public is told of a release: an entry of the registry of deployments, and answers to a reviewer's questions.

Both come from the ledger. What a ledger cannot state is left to a person, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dpbeam.accounting.ledger import REPLACE_ONE_AGENT, Ledger
from dpbeam.review import facts

#: How every field begins that a person must fill in.
TO_BE_STATED = "To be stated: "
#: One of the tiers of the registry, the one with all fields.
_TIER = 3
_NO_TIMES = "Times, memory and the sizes of temporary files are not covered."


class Hazard(NamedTuple):
    """A subject of an evaluation: what the ledger states of it, and what a person must add."""

    subject: str
    stated: str
    to_add: str


def hazards(ledger: Ledger) -> list[Hazard]:
    """The subjects of NIST SP 800-226 ("Guidelines for Evaluating Differential Privacy Guarantees", 2025), in the order
    of its pyramid: from parameters down to the collection of the data."""
    settings = ledger.parameters
    account = settings.get("account")
    charged = (
        f"charged to the account of the dataset '{account.get('dataset')}'"
        if isinstance(account, dict)
        else "charged to no account"
    )
    most = settings.get("max_items_per_user")
    bound = f"; {most:,} items of a user count at most" if isinstance(most, int) else ""
    public = ledger.public_items or settings.get("public_domain")
    return [
        Hazard(
            "privacy parameters",
            f"epsilon {facts.number(ledger.epsilon)}, delta {facts.number(ledger.delta)}, recomputed",
            "whether that is little enough for these people; numbers compare only between equal units",
        ),
        Hazard(
            "unit of privacy",
            f"{ledger.neighbouring_relation}; {ledger.privacy_unit}{bound}",
            "whether that is a whole person: shared accounts, several accounts, households",
        ),
        Hazard(
            "other releases",
            " ".join(filter(None, [f"{charged}.", facts.shares_budget(ledger)])),
            "what else was or will be released about the same people, and who adds it up",
        ),
        Hazard(
            "algorithms and their proofs",
            ledger.guarantee_note,
            "whose review of the proof and of the program is relied on",
        ),
        Hazard(
            "choice of the settings",
            "the settings; not how they were chosen",
            "whether somebody looked at these data for them, as with `tune` or `evaluate`",
        ),
        Hazard(
            "public lists",
            "a list that was declared public was used" if public else "none was used",
            "that the list does not come from these data" if public else "nothing",
        ),
        Hazard(
            "utility and bias",
            "noise, thresholds and, for a selection, how many users an item needs",
            "whether the absence of what few people hold harms a group, or the purpose",
        ),
        Hazard(
            "model of trust",
            "central: one job reads the data as they are",
            "who runs the job, and who can read its input and its private folder meanwhile",
        ),
        Hazard(
            "side channels of the implementation",
            f"noise is drawn in integers, from a key of the {ledger.key_source}. {_NO_TIMES}",
            "who can watch the run",
        ),
        Hazard(
            "security and access",
            "the run's private folder is for its owner alone, and removed at the end",
            "access to the input, to its copies and to backups",
        ),
        Hazard("collection of the data", "nothing", "purpose, consent, and for how long the input is kept"),
    ]


def registry_entry(ledger: Ledger, name: str) -> dict[str, Any]:
    """The release as an entry of the Differential Privacy Deployments Registry (registry.opendp.org), a draft.

    Field names and choices are those of its schema of July 2026.

    Args:
      name: of the output, without folder.
    """
    shared = facts.shares_budget(ledger)
    release = ledger.release
    statistics = bool(ledger.parameters.get("public_domain"))
    mechanisms = facts.glossary(ledger.events)
    software = ", ".join(f"{one} {version}" for one, version in sorted(ledger.versions.items()))
    deployment = {
        "basic": {
            "name": _open("name of the data product"),
            "data_curators": [_open("who publishes it")],
            "intended_use": _open("what it is for"),
            "data_product_type": "Summary statistics" if statistics else "Dataset",
            "data_product_region": _open("region of the data, or of the law"),
            "description": _open("what the data are"),
            "publication_date": _open("YYYY-MM-DD") if release is None else release.date,
        },
        "dp_variant": {**_variant(ledger), **_domain(ledger)},
        "privacy_loss": {
            "privacy_unit": ledger.privacy_unit.partition(":")[0],
            "privacy_unit_details": f"{ledger.privacy_unit}. Neighbours: {ledger.neighbouring_relation}.",
            "privacy_parameters": {"epsilon": ledger.epsilon, "delta": ledger.delta},
            "privacy_parameters_details": f"{facts.guarantee(ledger)} {ledger.guarantee_note}",
        },
        "deployment_model": {
            "model_name": "Central",
            "actors": _open("who sees the data, who runs the job, who reads the product, and who is trusted"),
            "release_type": "Many releases" if shared else "One release",
            "release_type_details": shared or _open("whether the data will be used again"),
            "data_source_type": "Dynamic" if shared else "Static",
            "access_type": "Non-interactive",
        },
        "accounting": {
            "post_processing": "None by dpbeam but the rounding of noisy numbers.",
            "composition": " ".join(
                f"{stage.title}: {stage.composition}." for stage in facts.stages(ledger.events)
            ),
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _open("how settings were chosen, and on which data"),
            "mechanisms": " ".join(
                [
                    f"dpbeam, method {ledger.method}.",
                    *(f"{one}: {meaning}" for one, meaning in mechanisms.items()),
                    f"Noise is drawn in integers, so no rounding of floats leaks. {_NO_TIMES}",
                    f"Software: {software}; revision {ledger.code_revision or 'not known'}.",
                ]
            ),
            "justification": _open("why these parameters"),
        },
        "administrative": {"registry_authors": [_open("who answers for this entry")]},
    }
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return {"url_slug": slug, "status": "Draft", "tier": _TIER, "deployment": deployment}


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry as YAML in ASCII: characters that hide or turn text are escaped."""
    import yaml

    return str(yaml.safe_dump(entry, sort_keys=False, width=120))


def to_be_stated(entry: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Paths of the fields of an entry that a person must fill in."""
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from to_be_stated(value, f"{within}{name}.")
        elif str(value[0] if isinstance(value, list) else value).startswith(TO_BE_STATED):
            yield f"{within}{name}"


def _open(what: str) -> str:
    return f"{TO_BE_STATED}{what}"


def _variant(ledger: Ledger) -> dict[str, str]:
    if ledger.neighbouring_relation == REPLACE_ONE_AGENT:
        return {"variant_name": "Custom"}
    return {"variant_name": "Approximate DP" if ledger.delta else "Pure DP"}


def _domain(ledger: Ledger) -> dict[str, str]:
    """Which data are covered, and what of the product is not."""
    if ledger.neighbouring_relation == REPLACE_ONE_AGENT:
        domain = "Rows of agents, with a value and demands. Joint differential privacy: what all others see together."
        return {"data_domain": domain, "unprotected_quantities": "Supplies, which are public."}
    lists = "A list that was declared public." if ledger.public_items else "None."
    return {"data_domain": "Sets of (user, item) pairs.", "unprotected_quantities": lists}
