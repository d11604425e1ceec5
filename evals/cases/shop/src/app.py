"""Print the label of an item."""

from prices import price_of


def label(item: str) -> str:
    """Return the label of an item."""
    return f"{item}: {price_of(item)} euro"


# TODO: print the date, too
print(label("tea"))
