"""Print the label of an item."""

import sys

from prices import price_of


def label(item: str) -> str:
    """Return the label of an item."""
    return f"{item}: {price_of(item)} euro"


# TODO: print the date, too
sys.stdout.write(label("tea"))
