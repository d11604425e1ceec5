"""Planted workspaces: what a repository brings, or a command leaves, to be believed later.

`environments`: links and configurations that would open a folder of the person's. `own_code`: what
would replace the programs that Ferrule itself runs from.
"""
