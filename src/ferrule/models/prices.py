"""What an answer costs: US dollars for the tokens of one question to a model.

Prices are looked for in this order:

1. the person's own file, `prices.yaml` in their settings folder, in US dollars for a million
tokens:

       anthropic:claude-sonnet-4-5: {input: 3, output: 15, cached: 0.3, written: 3.75}
       ollama:*: {input: 0, output: 0}         # whatever the provider's model

   `cached` and `written` are parts of the input; where they are left out they cost what `input`
   does.
2. `local:` models run on this machine and cost nothing.
3. the data of the library genai-prices (the extra `prices`), as it was released: nothing is
   fetched. It knows that cached tokens cost less, that written ones cost more, and that long
   questions can cost more.

A model without a price has no cost: None, and never 0. Not known here: discounts, taxes, service
tiers, tools that the provider runs itself, and whether an address of the person's own stands behind
a provider's name; their file says such things.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.events import Usage
from ferrule.storage import paths
from ferrule.storage.settings.yaml_tree import Node, parse_yaml

FILE = "prices.yaml"
_MILLION = Decimal(1_000_000)
_KINDS = ("input", "output", "cached", "written")
_PROVIDERS = {"openai-responses": "openai", "gemini": "google"}
"""Providers here that have another name in the data of genai-prices."""

Price = Callable[[Usage], Decimal]
"""What this much costs in US dollars."""


def cost(model: str, usage: Usage) -> Decimal | None:
    """US dollars for the tokens of one answer of `provider:model`; None if nobody knows. Raises
    ConfigError for a broken file.
    """
    price = price_of(model)
    return None if price is None else price(usage)


def price_of(model: str) -> Price | None:
    """How to find out what answers of this model cost; None if nobody knows. Raises ConfigError for
    a broken file.
    """
    own = _own(model)
    if own is not None:
        return lambda usage: _by_table(own, usage)
    if model.startswith("local:"):
        return lambda usage: Decimal(0)
    return _published(model)


def _own(model: str) -> dict[str, Decimal] | None:
    path = paths.config() / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read `{path}`: {error.strerror}") from error
    tree = parse_yaml(data, str(path))
    if tree.pairs is None:
        raise tree.error("must be a map from models to their prices")
    # All of it is read: a mistake in it is found before it matters.
    table = {name: _row(name, key, value) for name, (key, value) in tree.pairs.items()}
    return table.get(model) or table.get(f"{model.partition(':')[0]}:*")


def _row(name: str, key: Node, row: Node) -> dict[str, Decimal]:
    if ":" not in name.strip(":"):
        raise key.error(f"`{name}` names no model", hint="write `provider:model`, or `provider:*`")
    if row.pairs is None or not {"input", "output"} <= row.pairs.keys() <= set(_KINDS):
        raise row.error(f"`{name}` needs `input` and `output`, and may have `cached` and `written`")
    prices = {kind: _amount(kind, value) for kind, (_, value) in row.pairs.items()}
    return {"cached": prices["input"], "written": prices["input"], **prices}


def _amount(kind: str, node: Node) -> Decimal:
    found = node.value
    if (
        isinstance(found, bool)
        or not isinstance(found, (int, float))
        or not 0 <= found < float("inf")
    ):
        raise node.error(f"`{kind}` must be US dollars for a million tokens, 0 or more")
    return Decimal(str(found))


def _by_table(prices: dict[str, Decimal], usage: Usage) -> Decimal:
    fresh = max(0, usage.input - usage.cached - usage.written)
    total = fresh * prices["input"] + usage.output * prices["output"]
    return (total + usage.cached * prices["cached"] + usage.written * prices["written"]) / _MILLION


def _published(model: str) -> Price | None:
    try:
        import genai_prices
    except ImportError:
        return None
    provider, _, name = model.partition(":")
    if provider == "any":
        provider, _, name = name.partition("/")

    def price(usage: Usage) -> Decimal:
        tokens: Any = genai_prices.Usage(
            # A provider that counts what was cached beside the input would be counted too low
            # otherwise.
            input_tokens=max(usage.input, usage.cached + usage.written),
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.written,
            output_tokens=usage.output,
        )
        found = genai_prices.calc_price(
            tokens, name, provider_id=_PROVIDERS.get(provider, provider)
        )
        return found.total_price

    try:
        price(Usage(1, 1))
    except LookupError:
        return None
    return price
