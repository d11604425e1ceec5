"""Commands that only read: which run unasked where the kernel confines them, and which never do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools.definition import Confinement

Gates = Callable[..., PermissionGate]
CONFINED = Confinement(("/usr",), ("/tmp",))


def confined(gate: Gates, **rules: Any) -> PermissionGate:
    return gate(
        reads="allow",
        resources={Confinement: CONFINED},
        **rules,
    )


READING = """
ls
ls -la src | head -5
cat a.txt b.txt 2>/dev/null
cat a.txt 2>&1 | tail -5
/usr/bin/cat a.txt
git status
git diff HEAD~1 -- src
git log --oneline -5
git --no-pager show HEAD:a
grep -rn foo .
rg -n foo src
find . -name '*.py'
sed -n 1,5p a
awk '{print $1}' a
sort -u a | uniq -c
wc -l < a
jq . a.json
cd src && ls
for f in *.py; do wc -l "$f"; done
timeout 5 ls
cat "$NAME"
sleep 3
diff a b
test -f a && echo yes
ls /usr/include
""".strip().splitlines()

DOING = """
git branch -d x
git fetch
git -c core.pager=x log
git diff --output=x
git grep -O foo
git stash pop
git help log
find . -delete
find . -exec cat {} +
sed -i s/a/b/ a
sed -n 'w x' a
awk '{print > "x"}' a
awk 'BEGIN{system("x")}'
sort a -o b
uniq a b
xxd a b
cat a > b
ls | tee x
LD_PRELOAD=./x.so ls
PATH=.:$PATH; ls
./ls
bin/cat a
$CMD a
xargs rm < list
xargs sed -n p
ls | sh
python --version
make -n
ls; rm a
cat $(rm a)
ls() { rm a; }; ls
alias ls=rm; ls a
env ls
sudo ls
echo x | tee a
ls &&
tree -o x
rg --pre x foo
date -s 12:00
""".strip().splitlines()


@pytest.mark.parametrize("command", READING)
def test_a_command_that_only_reads_runs_unasked_where_the_sandbox_holds_it(
    gate: Gates, tools: SimpleNamespace, command: str
) -> None:
    call = {"command": command}
    assert confined(gate).decide(tools.run, call).verdict == "allow"
    assert confined(gate, mode="dontAsk").decide(tools.run, call).verdict == "allow"
    assert confined(gate, ask=["Bash"]).decide(tools.run, call).verdict == "ask"
    assert confined(gate, deny=["Bash"]).decide(tools.run, call).verdict == "deny"


@pytest.mark.parametrize("command", READING)
def test_it_asks_where_nothing_holds_it_or_the_person_wants_to_be_asked(
    gate: Gates, tools: SimpleNamespace, command: str
) -> None:
    call = {"command": command}
    unconfined = gate(reads="allow", resources={})
    nowhere = gate(reads="allow")
    asking = gate(resources={Confinement: CONFINED})
    for decided in (unconfined, nowhere, asking):
        assert decided.decide(tools.run, call).verdict != "allow"
    theirs = tools.make("run_command", tools.run.risk, tools.run.side_effect, command="command")
    assert confined(gate).decide(theirs, call).verdict != "allow"


@pytest.mark.parametrize("command", DOING)
def test_a_command_that_may_do_more_asks(gate: Gates, tools: SimpleNamespace, command: str) -> None:
    assert confined(gate).decide(tools.run, {"command": command}).verdict == "ask"


@pytest.mark.parametrize(
    "command", ["cat .env", "cat /etc/passwd", "cat ../x", "cat ~/.ssh/id_rsa", "ls .ferrule"]
)
def test_what_is_protected_is_refused_as_before(
    gate: Gates, tools: SimpleNamespace, command: str
) -> None:
    assert confined(gate).decide(tools.run, {"command": command}).verdict == "deny"


def test_a_name_that_a_deny_rule_could_mean_asks(gate: Gates, tools: SimpleNamespace) -> None:
    decided = confined(gate, deny=["Read(secrets/**)"])
    assert decided.decide(tools.run, {"command": "cat secrets/x"}).verdict == "deny"
    assert decided.decide(tools.run, {"command": "cat secret?/x"}).verdict == "ask"
