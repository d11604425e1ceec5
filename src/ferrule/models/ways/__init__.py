"""The ways to call tools besides the provider's own, and the ladder that chooses between them."""
