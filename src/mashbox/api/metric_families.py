"""Metrics of one model in the library's form: the prefix of their names and the model's label."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from mashbox.api.distribution import Distribution

PREFIX = "mashbox:"


class MetricFamilies:
    """Makes families whose every sample says which model it is about."""

    def __init__(self, model: str) -> None:
        self._model = model

    def gauge(self, name: str, text: str, value: float, **labels: str) -> GaugeMetricFamily:
        """One number that goes up and down."""
        family = GaugeMetricFamily(PREFIX + name, text, labels=["model_name", *labels])
        family.add_metric([self._model, *labels.values()], value)
        return family

    def counter(self, name: str, text: str, value: int) -> CounterMetricFamily:
        """One number that only rises; `_total` is added to its name."""
        family = CounterMetricFamily(PREFIX + name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def counters(
        self, name: str, text: str, label: str, values: Mapping[str, int] | Mapping[int, int]
    ) -> CounterMetricFamily:
        """One rising number for each value of `label`."""
        family = CounterMetricFamily(PREFIX + name, text, labels=["model_name", label])
        for key, value in values.items():
            family.add_metric([self._model, str(key)], value)
        return family

    def histogram(self, name: str, text: str, values: Distribution) -> HistogramMetricFamily:
        """A distribution."""
        family = HistogramMetricFamily(PREFIX + name, text, labels=["model_name"])
        family.add_metric([self._model], values.buckets(), values.sum)
        return family
