"""Claims about the check of an engine's description against the catalogue and the settings."""

import pytest

from app.engines import adoption, catalogue
from app.engines.adoption import Contradiction, Sighting
from app.engines.catalogue import Catalogue, Model
from app.settings import DEMO_MODELS

OWN = "smollm2-135m-instruct"
ALIAS = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def models() -> Catalogue:
    return catalogue.load(DEMO_MODELS)


def refusal(models: Catalogue, seen: Sighting, wanted: str | None = None) -> tuple[str, str, str]:
    """Code, message and remedy of the contradiction."""
    with pytest.raises(Contradiction) as caught:
        adoption.model_for(models, seen, wanted)
    problem = caught.value.problem
    return problem.code, problem.message, problem.remedy


def test_what_an_engine_tells_is_read_and_its_adapters_come_last() -> None:
    listed = [
        {"id": "lora", "parent": "base", "max_model_len": 100},
        {"id": "base", "parent": None, "max_model_len": 200},
        {"id": "other"},
    ]
    info = {"vllm_config": {"scheduler_config": {"policy": "fcfs"}}}
    seen = adoption.read({"data": listed}, {"version": "0.32.0"}, info)
    assert (seen.names, seen.version, seen.policy) == (("base", "other", "lora"), "0.32.0", "fcfs")
    assert seen.windows == {"base": 200, "other": None, "lora": 100}


@pytest.mark.parametrize("nonsense", [None, [], {"data": {}}, "x"])
def test_what_is_no_list_of_models_is_refused(nonsense: object) -> None:
    with pytest.raises(ValueError, match="/v1/models"):
        adoption.read(nonsense)


def test_what_an_engine_tells_wrongly_counts_as_not_told() -> None:
    seen = adoption.read(
        {"data": [{"id": "a", "max_model_len": "long"}, {"id": 7}, "x"]}, "0.32", {"vllm_config": "text"}
    )
    assert seen == Sighting({"a": None})


def test_an_engine_without_a_chat_is_for_embeddings() -> None:
    assert adoption.task_of({"paths": {"/v1/embeddings": {}}}) == "text-embeddings"
    assert adoption.task_of({"paths": {"/v1/embeddings": {}, "/v1/chat/completions": {}}}) == "text-generation"
    assert adoption.task_of(None) == "text-generation"


@pytest.mark.parametrize("name", [OWN, ALIAS])
def test_a_name_of_the_catalogue_is_the_catalogues_model(models: Catalogue, name: str) -> None:
    assert adoption.model_for(models, Sighting({"else": 10, name: 8192}), None).name == OWN


def test_an_engine_that_no_catalogue_knows_is_adopted_by_its_first_name(models: Catalogue) -> None:
    found = adoption.model_for(models, Sighting({"org/m": 4096, "m": 4096}), None)
    assert (found.name, found.served, found.context_window, found.adopted) == ("org/m", "org/m", 4096, True)
    assert (found.price, found.launch, found.shape, found.capabilities) == (None, None, "native", {"async_queue"})
    assert adoption.model_for(models, Sighting({"org/m": 4096, "m": 2048}), "m").context_window == 2048


def test_an_engine_that_does_not_serve_the_named_model_is_refused_with_both_names(models: Catalogue) -> None:
    code, message, remedy = refusal(models, Sighting({"theirs": 8192}), OWN)
    assert (code, message) == ("model_missing", f"The engine serves theirs, not {OWN}.")
    assert f"--served-model-name {OWN}" in remedy
    assert "SLACKWATER_ENGINE_MODEL=theirs" in remedy
    assert refusal(models, Sighting({"theirs": 8192}), "unknown")[1] == "The engine serves theirs, not unknown."
    assert refusal(models, Sighting({}))[0] == "model_missing"


@pytest.mark.parametrize("wanted", [None, OWN, "@cf/moonshotai/kimi-k2.6"])
def test_a_window_smaller_than_the_catalogues_is_refused_with_both_numbers(
    models: Catalogue, wanted: str | None
) -> None:
    code, message, remedy = refusal(models, Sighting({OWN: 2048}), wanted)
    assert code == "window_too_small"
    assert "2048 tokens" in message
    assert "promised with 8192" in message
    assert "--max-model-len 8192" in remedy
    assert "context_window = 2048" in remedy


def test_an_engine_that_does_not_tell_its_window_is_believed_the_catalogues_but_not_adopted(models: Catalogue) -> None:
    assert adoption.model_for(models, Sighting({OWN: None}), None).context_window == 8192
    code, message, remedy = refusal(models, Sighting({"org/m": None}))
    assert (code, "org/m" in message, "SLACKWATER_MODELS_FILE" in remedy) == ("window_unknown", True, True)


def test_a_larger_window_and_a_promise_kept_are_no_fault(models: Catalogue) -> None:
    own = models.resolve(OWN)
    assert own is not None
    assert adoption.fault(own, Sighting({OWN: 16_384}), 8192) is None
    assert adoption.fault(own, Sighting({}), 8192) is None


@pytest.mark.parametrize(("policy", "codes"), [("priority", []), (None, []), ("fcfs", ["no_priority_scheduling"])])
def test_a_policy_other_than_priority_is_a_shortcoming(policy: str | None, codes: list[str]) -> None:
    assert [problem.code for problem in adoption.shortcomings(Sighting({}, policy=policy))] == codes


def test_an_engine_that_takes_images_and_may_fetch_them_from_anywhere_is_complained_of() -> None:
    def codes(**config: object) -> list[str]:
        seen = adoption.read({"data": []}, None, {"vllm_config": {"model_config": config}})
        return [problem.code for problem in adoption.shortcomings(seen)]

    assert codes(multimodal_config={}, allowed_media_domains=None) == ["media_domains_open"]
    assert codes(multimodal_config={}, allowed_media_domains=["none.invalid"]) == []
    assert codes(multimodal_config=None, allowed_media_domains=None) == []
    assert codes() == []


def test_adopted_models_stand_beside_the_catalogues_whose_names_are_its_own(models: Catalogue) -> None:
    mine: Model = catalogue.adopted("org/m", 100, "text-generation")
    assert models.extended([]) is models
    assert models.extended([catalogue.adopted(ALIAS, 100, "text-generation")]) is models
    both = models.extended([mine])
    assert both.resolve("org/m") is mine
    assert both.resolve(OWN) is models.resolve(OWN)
    assert models.resolve("org/m") is None
