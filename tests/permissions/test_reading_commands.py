"""Commands that only read: which run unasked where the kernel confines them, and which never do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools.definition import Confinement

Gates = Callable[..., PermissionGate]
CONFINED = Confinement(("/usr",), ("/tmp",), has_loopback=True)


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
git branch
git branch -a
git branch --show-current
git stash list
git tag -l 'v*'
git worktree list
git reflog
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
python3 --version
python -V
python3.12 -c 'print(1)' 2>&1 | tail -3
python3 -c 'print(2**10, sum(x * 2 for x in range(5)))'
python3 -c 'import sys; print(sys.version_info[:2], sys.executable)'
/usr/bin/python3 -c "n = 4; print(f'{n:>3}', ','.join(sorted(['b', 'a'])))"
curl -sS -m 3 http://127.0.0.1:9/
curl localhost:3000/health
curl -so /dev/null -w '%{http_code}' 'http://localhost:8000/a?b=1'
curl -sSf --max-time 5 'http://[::1]:8080' | jq .
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
git stash
git branch x
git branch --list x y
git branch -a x
git tag v1
git tag -l $X
git worktree add x
git reflog expire --all
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
python x.py
python3 -c 'open("x", "w")'
python3 -c 'import os; os.remove("a")'
python3 -c 'import json'
python3 -c 'import sys as s'
python3 -c 'from sys import modules'
python3 -c 'import sys; sys.modules["os"].system("x")'
python3 -c 'max(["x"], key=exec)'
python3 -c 'print = exec; print("x")'
python3 -c 'abs = 1'
python3 -c '[exec for exec in (1,)]'
python3 -c '().__class__'
python3 -c '(lambda: 1)()'
python3 -c '__import__("os")'
python3 -c "print('{0.x}'.format(1))"
python3 -c 'print((f := eval)("1"))'
python3 -c "$CODE"
python3 -c 'print(1)' x.py
python3 -ic 'print(1)'
python3 -m http.server
python3 -
python3
PYTHONPATH=. python3 -c 'print(1)'
curl http://example.com
curl localhost.example.com
curl http://127.0.0.1:80@example.com/
curl http://localhost/ http://example.com/
curl -o x localhost:3000
curl -so x localhost:3000
curl -O localhost:3000/x
curl -d @a localhost:3000
curl -T a localhost:3000
curl -X DELETE localhost:3000
curl -L localhost:3000
curl -K x localhost:3000
curl -x localhost:1 localhost:3000
curl -w '%output{x}' localhost:3000
curl -w @x localhost:3000
curl -H @x localhost:3000
curl 'http://localhost/{a,b}'
curl http://localhost/ -:o x
curl localhost:$PORT
wget localhost:3000
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


@pytest.mark.parametrize("command", ["jq . a", "timeout 3 jq . a", "ls | nice jq .", "git log"])
def test_a_program_that_commands_can_have_written_asks(
    gate: Gates, tools: SimpleNamespace, command: str
) -> None:
    planted = Confinement(runs_machine_program=lambda name: name not in ("jq", "git"))
    decided = gate(reads="allow", resources={Confinement: planted})
    assert decided.decide(tools.run, {"command": command}).verdict == "ask"
    assert decided.decide(tools.run, {"command": "ls | cat"}).verdict == "allow"


def test_localhost_of_the_machine_asks(gate: Gates, tools: SimpleNamespace) -> None:
    decided = gate(reads="allow", resources={Confinement: Confinement()})
    assert decided.decide(tools.run, {"command": "curl localhost:3000"}).verdict == "ask"


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


EDITS = ("Edit(out.txt)", "Edit(src/**)")
"""What a person granted."""


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("echo hi > out.txt", "allow"),
        ("ls src >> out.txt 2>&1", "allow"),
        ("cd src && grep -rn foo . > found.txt", "allow"),
        ("ls && make", "allow"),
        ("git status --short; make | tail -3 > out.txt", "allow"),
        ("echo hi > other.txt", "ask"),
        ("echo hi > $NAME", "ask"),
        ("cd $DIR && echo hi > out.txt", "ask"),
        ("cp a out.txt", "ask"),
        ("sed -i s/a/b/ out.txt", "ask"),
        ("echo hi > out.txt && sh out.txt", "ask"),
        ("ls && make && rm a", "ask"),
        ("make && ./ls", "ask"),
        ("ls() { rm a; }; ls > out.txt", "ask"),
        ("echo hi > .git/hooks/pre-commit", "deny"),
        ("echo hi > src/.env", "deny"),
        ("echo hi > ../out.txt", "deny"),
    ],
)
def test_each_part_of_a_command_may_be_allowed_in_its_own_way(
    gate: Gates, tools: SimpleNamespace, command: str, verdict: str
) -> None:
    values = {"command": command}
    confining = confined(gate, allow=[*EDITS, "Bash(make:*)"])
    assert confining.decide(tools.run, values).verdict == verdict
    # Nothing of it holds where a protection is missing, or reading is asked about.
    assert gate(allow=[*EDITS, "Bash(make:*)"], reads="allow").decide(
        tools.run, values
    ).verdict in ("ask", "deny")


@pytest.mark.parametrize("mode", ["acceptEdits", "auto"])
def test_a_mode_for_edits_is_one_for_redirects_into_files(
    gate: Gates, tools: SimpleNamespace, mode: str
) -> None:
    confining = confined(gate, mode=mode)
    decided = confining.decide(tools.run, {"command": "echo hi > new.txt"})
    assert (decided.verdict, f"mode {mode}" in decided.reason) == ("allow", True)
    for command in ("echo hi > $NAME", "echo hi > new.txt; make", "touch new.txt", "ls > ../a"):
        assert confining.decide(tools.run, {"command": command}).verdict != "allow"
    asks = confined(gate, mode=mode, ask=["Edit(*.lock)"], deny=["Edit(*.cfg)"])
    for name, verdict in (("a.lock", "ask"), ("a.cfg", "deny"), ("a.txt", "allow")):
        decided = asks.decide(tools.run, {"command": f"echo hi > {name}"})
        assert decided.verdict == verdict


def test_all_edits_of_the_session_are_offered_and_cover_commands_that_write(
    gate: Gates, tools: SimpleNamespace
) -> None:
    confining = confined(gate)
    root = confining.context.root
    everywhere = f"Edit(/{root}/**)"
    write = {"path": "src/a.py"}
    redirect = {"command": "echo hi > docs/new.txt"}
    edit = confining.decide(tools.write, write)
    command = confining.decide(tools.run, redirect)
    for decision in (edit, command):
        kinds = [offer.choice for offer in decision.offers if offer.rule == everywhere]
        assert kinds == ["session"]  # never for later sessions
    folder = [offer.rule for offer in edit.offers if offer.choice == "remember"]
    assert folder == [f"Edit(/{root}/src/a.py)", f"Edit(/{root}/src/**)"]
    confining.apply_answer(tools.write, "session", everywhere, offers=edit.offers)
    assert confining.decide(tools.run, redirect).verdict == "allow"
    for asked in ("make", "rm docs/new.txt", "echo hi > new.txt; make"):
        decision = confining.decide(tools.run, {"command": asked})
        assert decision.verdict == "ask"
        assert everywhere not in [offer.rule for offer in decision.offers]


def test_a_file_at_the_top_is_in_the_folder_that_may_be_remembered(
    gate: Gates, tools: SimpleNamespace
) -> None:
    offers = confined(gate).decide(tools.write, {"path": "a.py"}).offers
    rules = [offer.rule for offer in offers if offer.choice == "remember"]
    assert rules[-1] == f"Edit(/{confined(gate).context.root}/**)"
