"""The configuration of a ranker that matches tokens: `CedrConfig`."""

from __future__ import annotations

from typing import Any, Literal, get_args

from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .checks import MOST_MODULES, MOST_WIDTH, check_choice, check_flag, check_positive, check_whole
from .configuration_ranker import RankerConfig, as_config, refuse_seq2seq
from .kernel_pooling import KERNEL_AGGREGATORS

KernelFormula = Literal["paper", "capreolus"]
"""Which description of kernel pooling is followed where descriptions differ; see `CedrConfig`."""
KernelLog = Literal["plain", "scaled"]
"""The logarithm of kernel pooling; see `CedrConfig`."""

# The details in which released code differs from the papers.
_FORMULAS: dict[str, dict[str, Any]] = {
    "paper": {
        "exact_width": 0.001,
        "kernel_log": "plain",
        "match_separators": False,
        "learn_kernels": False,
        "head_activation": "relu",
    },
    "capreolus": {
        "exact_width": 0.01,
        "kernel_log": "scaled",
        "match_separators": True,
        "learn_kernels": True,
        "head_size": 1024,
        "head_activation": "linear",
    },
}


class CedrConfig(RankerConfig):
    """Configuration of a ranker that matches the tokens of query and document: KNRM and CEDR-KNRM.

    Args:
        encoder_config: Any encoder's configuration.
        aggregation: `knrm` scores kernel features alone; `max` and `avg` (CEDR-KNRM) also the elementwise maximum or
            the mean of the passages' CLS vectors.
        match_layers: The encoder's layers whose states are matched: 0 is its embeddings, -1 its last layer. `None` is
            the last layer for `knrm`, and the embeddings and all layers for the other aggregations.
        formula: Sets the defaults of the settings below, from `exact_width` to `head_activation`: as in the `paper`,
            or as in the released PyTorch code (`capreolus`).
        exact_width: Width (sigma) of the kernel around equal vectors. `paper`: 0.001; `capreolus`: 0.01.
        kernel_log: The logarithm of a kernel's sum x over the document: `plain` is log(x + 1e-6), `scaled` is
            0.01 log(max(x, 1e-10)). `paper`: `plain`; `capreolus`: `scaled`.
        match_separators: Whether the separators after query and passage are matched like their tokens. `paper`: no;
            `capreolus`: yes.
        learn_kernels: Whether the kernels' centers and widths are learned. `paper`: no; `capreolus`: yes.
        head_size: Width of the hidden layer between features and score; 0 is none. `paper`: 0 for `knrm`, and the
            encoder's width for the other aggregations; `capreolus`: 1024.
        head_activation: Activation of the hidden layer. `paper`: `relu`; `capreolus`: `linear`, which is none.
        initializer_range: Standard deviation of all new weights.

    Example:
        >>> from transformers import ElectraConfig
        >>> CedrConfig(ElectraConfig(), aggregation="knrm").matched_layers
        [12]
    """

    model_type = "cedr"
    aggregators = KERNEL_AGGREGATORS
    aggregator_table = "KERNEL_AGGREGATORS"
    feature = "matches"
    default_reader = "layers"

    match_layers: list[int] | None
    formula: KernelFormula
    exact_width: float
    kernel_log: KernelLog
    match_separators: bool
    learn_kernels: bool
    head_size: int
    head_activation: str
    initializer_range: float

    def __init__(
        self,
        encoder_config: PreTrainedConfig | dict[str, Any] | None = None,
        aggregation: str = "max",
        match_layers: list[int] | None = None,
        formula: KernelFormula = "paper",
        exact_width: float | None = None,
        kernel_log: KernelLog | None = None,
        match_separators: bool | None = None,
        learn_kernels: bool | None = None,
        head_size: int | None = None,
        head_activation: str | None = None,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        check_choice("CedrConfig: formula", formula, get_args(KernelFormula))
        encoder_config = as_config(encoder_config)
        self.match_layers = match_layers
        self.formula = formula
        given = {
            "exact_width": exact_width,
            "kernel_log": kernel_log,
            "match_separators": match_separators,
            "learn_kernels": learn_kernels,
            "head_size": head_size,
            "head_activation": head_activation,
        }
        defaults = {"head_size": encoder_config.hidden_size if _reads_cls(aggregation) else 0, **_FORMULAS[formula]}
        for name, value in given.items():
            setattr(self, name, defaults[name] if value is None else value)
        self.initializer_range = initializer_range
        super().__init__(encoder_config, aggregation, **kwargs)

    @classmethod
    def _changed(cls, config_dict: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
        # Another formula has other defaults, and another aggregation has another head.
        if changes.get("formula", config_dict.get("formula")) != config_dict.get("formula"):
            changes = {**dict.fromkeys(_FORMULAS["capreolus"]), **changes}
        if changes.get("aggregation", config_dict.get("aggregation")) != config_dict.get("aggregation"):
            changes = {"head_size": None, **changes}
        return super()._changed(config_dict, changes)

    @property
    def reads_cls(self) -> bool:
        """Whether the aggregation takes the passages' CLS vectors."""
        return _reads_cls(self.aggregation)

    @property
    def matched_layers(self) -> list[int]:
        """`match_layers`, or their default, counted from the embeddings."""
        count = self.encoder_config.num_hidden_layers
        if self.match_layers is None:
            return list(range(count + 1)) if self.reads_cls else [count]
        for layer in self.match_layers:
            if not -count - 1 <= layer <= count:
                raise ValueError(
                    f"match_layers names {layer}, and the encoder has the layers 0 (its embeddings) to {count}."
                )
        return [layer % (count + 1) for layer in self.match_layers]

    def _check(self) -> None:
        super()._check()
        refuse_seq2seq(self.encoder_config)
        if self.match_layers is not None and not (self.match_layers and all(map(_is_whole, self.match_layers))):
            raise ValueError(
                f"CedrConfig: match_layers is {self.match_layers!r}, and has to be numbers of layers, such as [-1]."
            )
        if len(self.match_layers or []) > MOST_MODULES:
            raise ValueError(f"CedrConfig: match_layers has {len(self.match_layers or [])} layers, too many to match.")
        check_positive("CedrConfig: exact_width", self.exact_width)
        check_choice("CedrConfig: kernel_log", self.kernel_log, get_args(KernelLog))
        check_flag("CedrConfig: match_separators", self.match_separators)
        check_flag("CedrConfig: learn_kernels", self.learn_kernels)
        check_whole("CedrConfig: head_size", self.head_size, least=0, most=MOST_WIDTH)
        check_choice("CedrConfig: head_activation", self.head_activation, ACT2FN)


def _reads_cls(aggregation: str) -> bool:
    # An unknown aggregation is refused later, in a message that lists the known ones.
    return getattr(KERNEL_AGGREGATORS.get(aggregation), "reads_cls", True)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
