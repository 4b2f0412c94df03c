"""A panel of a Grafana dashboard, and how it becomes JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SOURCE = {"type": "prometheus", "uid": "prometheus"}
FIGURE_HEIGHT, PLOT_HEIGHT = 4, 8
GOOD, WARN, BAD = "green", "orange", "red"
HARVEST, CALLERS, QUIET = "#1c9c8d", "#44597d", "#86969c"
# Colours have meanings, on all dashboards; any other series takes the next one of the palette.
COLOURS = {"batch": HARVEST, "alone": CALLERS, "prompt": HARVEST, "output": "#6fc7bb", "cached": QUIET, "ok": HARVEST,
           "completed": HARVEST, "accepted": HARVEST, "deliver": HARVEST, "failed": BAD, "expired": BAD, "give_up": BAD,
           "cancelled": QUIET, "retry": WARN, "refused": WARN}  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """`queries`: expression → legend. `kind`: stat or timeseries. `steps`: a value and the colour from there on.

    `to`: the dashboard that says more.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    steps: Sequence[tuple[float, str]] = ()
    about: str = ""
    stacked: bool = False
    to: str = ""

    def json(self, number: int, x: int, y: int, width: int) -> dict[str, Any]:
        """The panel at its place."""
        height = FIGURE_HEIGHT if self.kind == "stat" else PLOT_HEIGHT
        return {
            "id": number,
            "title": self.title,
            "description": self.about,
            "type": self.kind,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "targets": [
                {"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
                for i, (expr, legend) in enumerate(self.queries.items())
            ],
            "fieldConfig": {"defaults": self._defaults(), "overrides": self._overrides()},
            "options": self._options(),
            "links": [{"title": "More", "url": f"/d/slackwater-{self.to}"}] if self.to else [],
        }

    def _defaults(self) -> dict[str, Any]:
        colours = [{"color": GOOD, "value": None}, *({"color": colour, "value": value} for value, colour in self.steps)]
        shown = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": colours}, "noValue": "not known"}
        if self.kind == "stat":
            return {**shown, "color": {"mode": "thresholds"}}
        custom: dict[str, Any] = {"drawStyle": "line", "fillOpacity": 8, "lineWidth": 1, "stacking": {"mode": "none"}}
        if self.stacked:
            custom = {"drawStyle": "bars", "fillOpacity": 70, "lineWidth": 0, "stacking": {"mode": "normal"}}
        custom["thresholdsStyle"] = {"mode": "line" if self.steps else "off"}
        return {**shown, "custom": custom, "min": 0, "color": {"mode": "palette-classic"}}

    def _overrides(self) -> list[dict[str, Any]]:
        """The colours of names that have one, where the legend is a label alone."""
        alone = any(legend.startswith("{{") and legend.endswith("}}") for legend in self.queries.values())
        return [
            {
                "matcher": {"id": "byName", "options": name},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
            }
            for name, colour in COLOURS.items()
            if alone
        ]

    def _options(self) -> dict[str, Any]:
        if self.kind == "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
        return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}


def figure(
    title: str, query: str, unit: str = "short", *steps: tuple[float, str], about: str = "", to: str = ""
) -> Panel:
    """One number."""
    return Panel(title, {query: ""}, unit, "stat", steps, about, to=to)


def quantiles(metric: str, by: str = "") -> dict[str, str]:
    """Median and 95th percentile of a histogram."""
    labels = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    return {
        f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))": f"{legend}p{q * 100:g}"
        for q in (0.5, 0.95)
    }


def beside(metric: str) -> str:
    """The 95th percentile of callers' times beside batch work, and alone."""
    return f"histogram_quantile(0.95, sum by (le, beside) (rate({metric}_bucket[$__rate_interval])))"


NOT_DELIVERED = 'sum by (outcome) (rate(slackwater_notifier_attempts_total{outcome!="deliver"}[$__rate_interval]))'
