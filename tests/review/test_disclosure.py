"""A ledger as an entry of the registry of deployments, and as answers to what a reviewer asks."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from dpbeam.accounting.ledger import KEY_FIXED_TEST, Ledger
from dpbeam.cli import main
from dpbeam.review.disclosure import entry_text, hazards, registry_entry, to_be_stated
from tests.families.contracts import LEDGERS
from tests.support.examples import ROOT
from tests.support.releases import RELEASE, ledger_of

STORED = {
    path.name: Ledger.from_json(path.read_text())
    for folder in ("accounting/ledgers", "review/version-1.0.0")
    for path in sorted((ROOT / "tests" / folder).glob("*.ledger.json"))
}

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}


def choice(*values):
    return {"enum": list(values)}


def fields(*required, **properties):
    return {"additionalProperties": False, "required": list(required), "properties": properties}


#: Fields and choices of the registry's schema of 15 July 2026 (opendp/deployments-registry-data); those that an entry
#: of the third tier should have are asked for here.
SCHEMA = fields(
    *("url_slug", "status", "tier", "deployment"),
    url_slug={"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
    status=choice("Draft"),
    tier=choice(1, 2, 3),
    deployment=fields(
        *(
            "basic",
            "dp_variant",
            "privacy_loss",
            "deployment_model",
            "accounting",
            "implementation",
            "administrative",
        ),
        basic=fields(
            *("name", "data_curators", "description", "intended_use", "data_product_type"),
            *("data_product_region", "publication_date"),
            name=TEXT,
            data_curators=TEXTS,
            intended_use=TEXT,
            data_product_type=choice(
                *(
                    "Summary statistics",
                    "Machine learning model",
                    "Dataset",
                    "Synthetic data",
                    "Interactive API",
                ),
                "SQL queries",
            ),
            data_product_region=TEXT,
            description=TEXT,
            publication_date=TEXT,
            data_product_sector=TEXT,
        ),
        dp_variant=fields(
            *("variant_name", "data_domain", "unprotected_quantities"),
            variant_name=choice("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            data_domain=TEXT,
            unprotected_quantities=TEXT,
        ),
        privacy_loss=fields(
            *("privacy_unit", "privacy_unit_details", "privacy_parameters"),
            privacy_unit=TEXT,
            privacy_unit_details=TEXT,
            privacy_parameters=fields(
                epsilon={"type": "number"}, delta={"type": "number"}, rho={"type": "number"}
            ),
            privacy_parameters_details=TEXT,
        ),
        deployment_model=fields(
            *("model_name", "actors", "release_type", "data_source_type", "access_type"),
            model_name=choice("Local", "Central", "Shuffle", "Federated"),
            model_name_details=TEXT,
            actors=TEXT,
            release_type=choice("One release", "Many releases"),
            release_type_details=TEXT,
            data_source_type=choice("Static", "Dynamic"),
            data_source_type_details=TEXT,
            access_type=choice("Interactive", "Non-interactive"),
            access_type_details=TEXT,
        ),
        accounting=fields("post_processing", "composition", post_processing=TEXT, composition=TEXT),
        implementation=fields(
            *("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"),
            preprocessing_and_hyperparameter_tuning=TEXT,
            mechanisms=TEXT,
            justification=TEXT,
        ),
        administrative=fields("registry_authors", registry_authors=TEXTS, sources=TEXT, notes=TEXT),
    ),
)


def read_back(ledger: Ledger, name: str = "items") -> dict:
    return yaml.safe_load(entry_text(registry_entry(ledger, name)))


@pytest.mark.parametrize("name", [*STORED, *LEDGERS])
def test_an_entry_has_the_fields_of_the_registry(name):
    ledger = STORED[name] if name in STORED else LEDGERS[name]()
    entry = read_back(ledger, name)
    jsonschema.validate(entry, SCHEMA)
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": ledger.epsilon, "delta": ledger.delta}
    assert ledger.privacy_unit in loss["privacy_unit_details"]
    assert ledger.neighbouring_relation in loss["privacy_unit_details"]
    night = ledger.method.startswith("series")
    assert entry["deployment"]["deployment_model"]["release_type"] == (
        "Many releases" if night else "One release"
    )
    assert [hazard for hazard in hazards(ledger) if not all(hazard)] == []


def test_what_a_person_must_state_is_named():
    stated = list(to_be_stated(read_back(ledger_of("gsu"))))
    assert [path.removeprefix("deployment.") for path in stated] == [
        *(
            f"basic.{name}"
            for name in ("name", "data_curators", "intended_use", "data_product_region", "description")
        ),
        *(f"deployment_model.{name}" for name in ("actors", "release_type_details")),
        *(f"implementation.{name}" for name in ("preprocessing_and_hyperparameter_tuning", "justification")),
        "administrative.registry_authors",
    ]
    assert "deployment.basic.publication_date" in to_be_stated(read_back(ledger_of(release=None)))


@pytest.mark.parametrize(
    ("relation", "delta", "variant"),
    [("add/remove one user", 1e-6, "Approximate DP"), ("replace the row of one agent", 1e-6, "Custom")],
)
def test_variant(relation, delta, variant):
    ledger = ledger_of(neighbouring_relation=relation, delta=delta)
    assert read_back(ledger)["deployment"]["dp_variant"]["variant_name"] == variant


def test_a_pure_ledger_is_called_so():
    pure = [ledger for ledger in STORED.values() if ledger.delta == 0]
    assert pure
    for ledger in pure:
        assert read_back(ledger)["deployment"]["dp_variant"]["variant_name"] in ("Pure DP", "Custom")


def test_an_entry_hides_nothing():
    text = entry_text(registry_entry(ledger_of(privacy_unit="one \u202euser\x1b[31m"), "items"))
    assert text.isascii() and text.replace("\n", "").isprintable()


def test_an_account_and_public_lists_are_answered():
    def answer(ledger, subject):
        return next(hazard for hazard in hazards(ledger) if hazard.subject == subject)

    paid = ledger_of().stating(account={"dataset": "logs", "release_id": "a"})
    assert "'logs'" in answer(paid, "other releases").stated
    assert "no account" in answer(ledger_of(), "other releases").stated
    assert answer(ledger_of(), "public lists").to_add == "nothing"
    assert answer(ledger_of(public_items=True), "public lists").to_add != "nothing"
    assert "100 items" in answer(ledger_of(settings={"max_items_per_user": 100}), "unit of privacy").stated


class TestCommand:
    @pytest.fixture
    def ledger(self, tmp_path, monkeypatch) -> Path:
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "items.ledger.json"
        path.write_text(ledger_of("gsu").to_json())
        return path

    def run(self, path, *more) -> int:
        return main(["report", str(path), "--ledger_alone", *more])

    def test_page_and_entry(self, ledger, capsys):
        assert self.run(ledger, "--registry=entry.yaml") == 0
        entry = yaml.safe_load(Path("entry.yaml").read_text())
        jsonschema.validate(entry, SCHEMA)
        assert (
            entry["url_slug"] == "items" and entry["deployment"]["basic"]["publication_date"] == RELEASE.date
        )
        assert "a person must state deployment.basic.name, " in capsys.readouterr().out
        assert re.search("What to ask before signing", Path("items.report.html").read_text())
        assert self.run(ledger, "--registry=entry.yaml") == 2
        assert self.run(ledger, "--registry=entry.yaml", "--overwrite") == 0

    @pytest.mark.parametrize("file", ["items.report.html", "items.ledger.json"])
    def test_another_file_of_the_command(self, file, ledger, capsys):
        before = ledger.read_bytes()
        assert self.run(ledger, f"--registry={file}", "--overwrite") == 2
        assert "--registry: " in capsys.readouterr().err
        assert ledger.read_bytes() == before and not Path("items.report.html").exists()

    def test_a_fixed_key_has_nothing_to_register(self, ledger, capsys):
        values = json.loads(ledger.read_text()) | {"key_source": KEY_FIXED_TEST}
        ledger.write_text(json.dumps(values))
        assert self.run(ledger, "--registry=entry.yaml") in (1, 2)
        assert not Path("entry.yaml").exists()
