"""What every face needs: an agent made of a person's settings, and the door of a server."""
