"""What an answer costs: US dollars for the tokens of one request to a model.

Prices are looked up in this order:

1. the user's own file, `prices.yaml` in the settings folder, in US dollars per million tokens:

       anthropic:claude-sonnet-4-5: {input: 3, output: 15, cached: 0.3, written: 3.75}
       ollama:*: {input: 0, output: 0}         # every model of the provider

   `cached` and `written` are parts of the input; where they are left out they cost as much as
   `input`.
2. models of providers whose row in `registry` says that they are free (`local:`) cost nothing.
3. the data of the library genai-prices (the extra `prices`), as it was released; nothing is
   fetched. It knows that cached tokens cost less, that written ones cost more, and that long
   requests can cost more.

A model without a price has the cost None, never 0. Not covered: discounts, taxes, service tiers,
tools that the provider runs itself, and a custom address behind a provider's name. The user's file
can state such prices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError
from ferrule.core.events import Usage
from ferrule.core.value_class import options
from ferrule.storage import paths

from .registry import find_provider

if TYPE_CHECKING:
    from ferrule.storage.settings.yaml_tree import Node

PRICES_FILE = "prices.yaml"
_MILLION = Decimal(1_000_000)
_TOKEN_KINDS = ("input", "output", "cached", "written")
_NAMES_OF_ANY_LLM = {"gemini": "google"}
"""Providers behind any-llm whose names in the data of genai-prices are different."""

Price = Callable[[Usage], Decimal]
"""Maps token usage to its cost in US dollars."""


@options
class PricePerMillion:
    """The price of a model in US dollars per million tokens, if a program knows it.

    Attributes:
        input: Tokens of requests.
        output: Tokens of answers.
        cached: The part of `input` that came from the provider's cache; by default as `input`.
        written: The part of `input` that was written to the cache; by default as `input`.

    Raises:
        ConfigError: A price is not a number, 0 or more.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None

    def __post_init__(self) -> None:
        for kind in _TOKEN_KINDS:
            amount = getattr(self, kind)
            if amount is not None and not 0 <= amount < math.inf:
                raise ConfigError(
                    f"PricePerMillion: {kind} = {amount!r}", hint="give US dollars, 0 or more"
                )

    def __call__(self, usage: Usage) -> Decimal:
        """Return the cost of tokens in US dollars."""
        given = {kind: getattr(self, kind) for kind in _TOKEN_KINDS}
        prices = {
            kind: Decimal(str(self.input if amount is None else amount))
            for kind, amount in given.items()
        }
        return _calculate(prices, usage)


def find_price(model: str) -> Price | None:
    """Return the price function of a model, or None if its price is unknown.

    Raises:
        ConfigError: The price file is broken.
    """
    own = _read_own_prices(model)
    if own is not None:
        return lambda usage: _calculate(own, usage)
    row = find_provider(model)
    if row is not None and row.is_free:
        return lambda usage: Decimal(0)
    if row is None and not model.startswith("any:"):
        return None
    return _load_published_price(model)


def _read_own_prices(model: str) -> dict[str, Decimal] | None:
    path = paths.config() / PRICES_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error
    # Imported here: most people have no such file, and every run asks.
    from ferrule.storage.settings.yaml_tree import parse_yaml

    tree = parse_yaml(data, str(path))
    if tree.pairs is None:
        raise tree.error("must be a map from models to their prices")
    # The whole file is parsed, so that a mistake is found before it matters.
    table = {name: _parse_row(name, key, value) for name, (key, value) in tree.pairs.items()}
    return table.get(model) or table.get(f"{model.partition(':')[0]}:*")


def _parse_row(name: str, key: Node, row: Node) -> dict[str, Decimal]:
    if ":" not in name.strip(":"):
        raise key.error(
            f"`{name}` is not a model's name", hint="write `provider:model` or `provider:*`"
        )
    if row.pairs is None or not {"input", "output"} <= row.pairs.keys() <= set(_TOKEN_KINDS):
        raise row.error(f"`{name}` needs `input` and `output`, and may have `cached` and `written`")
    prices = {kind: _parse_amount(kind, value) for kind, (_, value) in row.pairs.items()}
    return {"cached": prices["input"], "written": prices["input"], **prices}


def _parse_amount(kind: str, node: Node) -> Decimal:
    amount = node.value
    is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
    if not is_number or not 0 <= amount < float("inf"):
        raise node.error(f"`{kind}` must be US dollars per million tokens, 0 or more")
    return Decimal(str(amount))


def _calculate(prices: dict[str, Decimal], usage: Usage) -> Decimal:
    fresh = max(0, usage.input - usage.cached - usage.written)
    total = fresh * prices["input"] + usage.output * prices["output"]
    return (total + usage.cached * prices["cached"] + usage.written * prices["written"]) / _MILLION


def _load_published_price(model: str) -> Price | None:
    try:
        import genai_prices
    except ImportError:
        return None
    provider, _, name = model.partition(":")
    if provider == "any":
        provider, _, name = name.partition("/")
    row = find_provider(f"{provider}:")
    price_name = row.price_name if row is not None else ""
    listed_as = price_name or _NAMES_OF_ANY_LLM.get(provider, provider)

    def price(usage: Usage) -> Decimal:
        tokens: Any = genai_prices.Usage(
            # Some providers count cached tokens beside the input: their total would be too low.
            input_tokens=max(usage.input, usage.cached + usage.written),
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.written,
            output_tokens=usage.output,
        )
        found = genai_prices.calc_price(tokens, name, provider_id=listed_as)
        return found.total_price

    try:
        price(Usage(1, 1))
    except LookupError:
        return None
    return price
