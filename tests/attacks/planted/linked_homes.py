"""Files of the workspace that the person's home or environment leads to, as dotfiles are kept.

A row is its name, what leads there, the place in the workspace, the file that a command writes,
and what it did to the code before. What leads there is a link in the home, or `NAME=`, a variable.
"""

from __future__ import annotations

from . import CONTROL, FAILED, Before

PLANTED: tuple[tuple[str, str, str, str, Before], ...] = (
    ("home-git-folder", ".config/git", "git", "git/config", FAILED),
    ("home-git-file", ".gitconfig", "git.ini", "git.ini", FAILED),
    ("home-shell", ".bashrc", "shell/rc", "shell/rc", FAILED),
    ("home-shell-in-depth", ".zshrc", "shell/deep/er/rc", "shell/deep/er/rc", FAILED),
    ("home-editor", ".config/nvim", "nvim", "nvim/init.lua", FAILED),
    ("home-terminal", ".config/tmux", "tmux", "tmux/tmux.conf", FAILED),
    ("home-login", ".config/autostart", "start", "start/x.desktop", FAILED),
    ("home-unit", ".config/systemd/user/x.service", "x.unit", "x.unit", FAILED),
    ("home-claude-file", ".claude/settings.json", "claude.json", "claude.json", FAILED),
    ("home-claude-hook", ".claude/hooks/check.sh", "check.sh", "check.sh", FAILED),
    ("home-own-folder", ".config/ferrule", "own", "own/hooks.json", FAILED),
    ("home-own-settings", ".config/ferrule/ferrule.yaml", "mine.yaml", "mine.yaml", FAILED),
    ("home-own-rules", ".config/ferrule/hooks/a.md", "guard.md", "guard.md", FAILED),
    ("home-keys", ".ssh", "keys", "keys/config", FAILED),
    ("home-same-name", ".vimrc", ".vimrc", ".vimrc", CONTROL),
    ("variable-of-folders", "XDG_CONFIG_HOME=", "xdg", "xdg/fish/config.fish", FAILED),
    ("variable-of-bash", "BASH_ENV=", "env.sh", "env.sh", FAILED),
    ("variable-of-python", "PYTHONSTARTUP=", "start.py", "start.py", FAILED),
    ("variable-of-git", "GIT_CONFIG_GLOBAL=", "git.ini", "git.ini", FAILED),
)  # fmt: skip
