"""The task: an article is ordered in five steps, the last of which has an effect and must happen
once.

The tools are plain functions, as every framework takes them, and as carefree as such functions are:
none checks the types of what it is given. This file runs in the frameworks' own environments, needs
the standard library alone, and does not put off its annotations, which some frameworks read as they
are.
"""

import zlib
from dataclasses import dataclass
from random import Random

SHIPPING = 490
PLACED: list[tuple[object, object, object]] = []
"""The orders of the run under way: article, pieces and total as `place_order` was given them."""


def open_desk() -> str:
    """Open the order desk. Do this before anything else."""
    return "the desk is open"


def find_item(code: str, limit: int = 5) -> str:
    """Find an article by the code that is printed on it.

    Args:
        code: The code, five digits as text.
        limit: Greatest number of articles to return.
    """
    code = code.strip()
    if len(code) != 5 or not code.isdigit():
        raise LookupError(f"no article has the code {code!r}")
    return f"found: item {item_of(code)}, 1 of at most {int(limit)}"


def get_price(item_id: int, currency: str = "EUR") -> str:
    """Say what one piece of an article costs, in cents.

    Args:
        item_id: The number of the article, as find_item returns it.
        currency: Three letters.
    """
    return f"price: {price_of(item_id)} cents ({currency.upper()})"


def add_up(amounts: list[int]) -> str:
    """Add up amounts of money, in cents.

    Args:
        amounts: The amounts to add.
    """
    return f"sum: {sum(amounts)} cents"


def place_order(item_id: int, total: int, quantity: int, note: str = "") -> str:
    """Order pieces of an article. This cannot be taken back.

    Args:
        item_id: The number of the article.
        total: What add_up returned, in cents.
        quantity: How many pieces.
        note: Anything the warehouse should know.
    """
    PLACED.append((item_id, total, quantity))
    return f"ordered: confirmation {confirmation(item_id, total, quantity)}"


TOOLS = (open_desk, find_item, get_price, add_up, place_order)
DONE = {
    "open_desk": r"the desk is open",
    "find_item": r"found: item (\d+)",
    "get_price": r"price: (\d+) cents",
    "add_up": r"sum: (\d+) cents",
    "place_order": r"ordered: confirmation (\S+-\d+)",
}
"""What a tool that did its work says: nothing else in a run matches this."""


def item_of(code: str) -> int:
    """The number of the article with a code."""
    return 1000 + zlib.crc32(code.encode()) % 9000


def price_of(item_id: int) -> int:
    """Cents of one piece. Raises TypeError for what is no number, as arithmetic does."""
    return 100 + (item_id + 0) * 7919 % 900


def confirmation(item_id: object, total: object, quantity: object) -> str:
    """What place_order gives back; it holds what was ordered."""
    return f"F-{item_id}-{total}-{quantity}"


@dataclass(frozen=True, slots=True)
class Order:
    """What the person wants, and so what must come of it."""

    code: str
    quantity: int

    @staticmethod
    def drawn(random: Random) -> "Order":
        """Some order. Codes have no leading zero; quantities have two digits, so that one of them
        can be lost.
        """
        return Order(str(random.randint(10_000, 99_999)), random.randint(12, 89))

    @property
    def placed(self) -> tuple[int, int, int]:
        """The one order that is to be placed: article, total, pieces."""
        item = item_of(self.code)
        return item, price_of(item) + SHIPPING, self.quantity

    @property
    def confirmation(self) -> str:
        """What the last words must hold."""
        return confirmation(*self.placed)

    def request(self) -> str:
        """The person's words."""
        return (
            f"Order {self.quantity} pieces of the article with the code {self.code}. Open "
            "the desk, find the article, get the"
            f" price of one piece, add {SHIPPING} cents of shipping, place the order, and "
            "tell me the confirmation."
        )
