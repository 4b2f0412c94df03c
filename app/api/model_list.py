"""The names of models, which both dialects list."""

from app.engines.catalogue import Catalogue, Model

CREATED = 1_735_689_600  # Unix seconds; the catalogue has no dates, and a constant keeps clients' caches valid


def named(catalogue: Catalogue) -> list[tuple[str, Model]]:
    """Every name with its model, aliases included, in alphabetical order."""
    names = [(name, model) for model in catalogue.models.values() for name in (model.name, *model.aliases)]
    return sorted(names, key=lambda entry: entry[0])
