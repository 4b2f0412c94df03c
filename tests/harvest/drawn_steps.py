"""Steps and models that hypothesis draws for tests of the step plan and the step budget."""

from hypothesis import strategies as st

from workers.engine.step_model import WARM, StepModel
from workers.engine.step_plan import Sync

CAP = 2048


def model_of(weights: tuple[float, float, float, float, float]) -> StepModel:
    """A model that holds exactly these weights and has seen enough to be trusted."""
    model = StepModel.of(weights)
    for _ in range(WARM * 4):
        model.learn(1, 0, model.predict(1, 0))
    return model


models = st.tuples(
    st.floats(1e-3, 5e-2),
    st.floats(1e-6, 1e-3),
    st.floats(1e-9, 1e-6),
    st.floats(0, 1e-3),
    st.sampled_from([32.0, 192.0]),
).map(model_of)
syncs = st.builds(
    Sync,
    tokens=st.integers(1, CAP),
    context=st.integers(0, 200_000),
    decoding=st.integers(0, 64),
    decode_context=st.integers(0, 100_000),
    waiting=st.integers(0, 3),
    present=st.just(True),
)
