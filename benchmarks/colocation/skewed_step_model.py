"""A step model that learns like ours and then errs by a fixed factor, for the ablation."""

from app.headroom.step_model import StepModel


class SkewedModel(StepModel):
    """Says `factor` times what it has learnt; 1 is the model as it ships."""

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
