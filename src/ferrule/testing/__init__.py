"""Real parts to test with: fakes of what we do not own and the contracts of our seams as suites."""
