"""A step model with a constant relative error, for an ablation."""

from workers.engine.step_model import StepModel


class SkewedStepModel(StepModel):
    """Predicts `factor` times what the shipped model predicts."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self._factor = factor

    @property
    def slope_below(self) -> float:
        return self._factor * super().slope_below

    @property
    def slope_above(self) -> float:
        return self._factor * super().slope_above

    @property
    def per_context(self) -> float:
        return self._factor * super().per_context

    def predict(self, tokens: float, context: float) -> float:
        return self._factor * super().predict(tokens, context)
