"""Command lines that do more than the rule for their program says, each with a twin that does not,
as data.

`rule` is all that is allowed; `source` says which class of mistakes the row stands for.
"""

from __future__ import annotations

from typing import NamedTuple


class HazardRow(NamedTuple):
    """`command` must not be allowed by `rule` alone; `twin` must."""

    rule: str
    command: str
    twin: str
    source: str


_MISSING = "named by hand, missing in the table made from help"
_UNKNOWN = "neither named nor in a table"
_SED = "a value that is a number is no script"
_INPUT = "commands from standard input, or a debugger"
_STARTED = "started by another program"
_NPM = "abbreviations and aliases of npm"
_AWK = "another awk"
_MORE = "programs that had no entry"
_ARGUMENTS = "options in a file (`@file`)"

ROWS = tuple(
    HazardRow(*row)
    for row in (
        ("pytest", "pytest --junitxml=docs/d.md tests", "pytest --junit-prefix x tests", _MISSING),
        ("pytest", "pytest --benchmark-json=F", "pytest --benchmark-only", _MISSING),
        ("pytest", "pytest --report-log=F", "pytest --lf", _MISSING),
        ("pytest", "pytest --html=F", "pytest -q --cov=src --cov-report=term-missing", _MISSING),
        (
            "pytest",
            "pytest --cov-report xml:src/a.py",
            "pytest --cov-report term:skip-covered",
            _MORE,
        ),
        ("zip", "zip x.zip a --test --unzip-command 'touch x'", "zip x.zip a b", _MISSING),
        ("zip", "zip x.zip a -T --unz 'touch x'", "zip --recurse-paths x.zip docs", _MISSING),
        ("zip", "zip -qrTT 'touch x' x.zip a", "zip -qr9 x.zip docs -x '*.pyc'", _MISSING),
        ("zip", "zip -qrm x.zip docs", "zip -qry x.zip docs", _MISSING),
        ("zip", "zip --move x.zip docs", "zip --symlinks x.zip docs", _MISSING),
        ("zip", "zip --delete x.zip docs", "zip --verbose x.zip docs", _MISSING),
        ("rsync", "rsync --delete a b", "rsync -a a b", _MISSING),
        ("wget", "wget --no-such-thing=x", "wget -q https://example.com/a", _UNKNOWN),
        ("pytest", "pytest --plugin-of-yours=x", "pytest -n 4 --timeout 10", _UNKNOWN),
        ("rg", "rg --heard-of-tomorrow x", "rg --no-ignore x", _UNKNOWN),
        ("sed", "sed -l p '1e touch x' a", "sed -l 5 p a", _SED),
        ("sed", "sed --line-length=p 'w f' a", "sed --line-length=5 p a", _SED),
        ("sed", "sed --line p 'w f' a", "sed --line 5 p a", _SED),
        ("sed", "sed -nl p 'w f' a", "sed -nl 5 p a", _SED),
        ("sed", "sed -lp 'w f' a", "sed -l5 p a", _SED),
        ("sed", "sed -l 5 -e p -e 'w f' a", "sed -l 5 -e p -e d a", _SED),
        ("sed", "sed a -e 'w f'", "sed a -e p", _SED),
        ("pytest", "pytest --trace tests", "pytest --trace-config tests", _INPUT),
        ("pytest", "pytest --pdb tests", "pytest -s tests", _INPUT),
        ("python", "python -i a.py", "python a.py -i", _INPUT),
        ("node", "node -i a.js", "node a.js -i", _INPUT),
        ("mypy", "mypy --pdb a.py", "mypy --strict a.py", _INPUT),
        ("sphinx-build", "sphinx-build -P a b", "sphinx-build -q a b", _INPUT),
        ("sqlite3", "sqlite3 a.db", "sqlite3 a.db 'select 1'", _INPUT),
        (
            "sqlite3",
            "sqlite3 a.db '.shell touch x'",
            "sqlite3 -json a.db 'select a.b from a'",
            _INPUT,
        ),
        (
            "sqlite3",
            "sqlite3 a.db \"select load_extension('./x')\"",
            "sqlite3 a.db '.tables'",
            _INPUT,
        ),
        ("psql", "psql", "psql -c 'select 1'", _INPUT),
        ("psql", r"psql -c '\! touch x'", "psql --command 'select 2' db", _INPUT),
        ("psql", "psql -f a.sql", "psql -l", _INPUT),
        ("mysql", "mysql db", "mysql -e 'select 1' db", _INPUT),
        ("mysql", r"mysql -e '\! touch x'", "mysql --execute 'select 1'", _INPUT),
        ("gdb", "gdb a", "gdb -batch a", _INPUT),
        ("gdb", "gdb -batch -ex 'shell touch x' a", "gdb --batch --args a -ex", _INPUT),
        ("dc", "dc", "dc -e '1 2 + p'", _INPUT),
        ("dc", "dc -e '!touch x'", "dc -e '1 1 !=a p'", _INPUT),
        ("ed", "ed a", "", _INPUT),
        ("ex", "ex -s a", "", _INPUT),
        ("vim", "vim -s x a", "", _INPUT),
        ("python -m pytest", "python -m pytest --basetemp=docs", "python -m pytest -q", _STARTED),
        ("python -m pytest", "python -m pytest -p evil", "python -m pytest -k evil", _STARTED),
        ("python -m pytest", "python -m pytest -c src/x.ini", "python -m pytest -x -vv", _STARTED),
        ("python3", "python3 -m pytest --pdb", "python3 -m pytest --tb=short", _STARTED),
        ("python3.12", "python3.12 -Im pytest --pdb", "python3.12 -Im pytest", _STARTED),
        ("python", "python -mpytest.__main__ --pdb", "python -m unittest", _STARTED),
        ("python", "python -m json.tool a b", "python -m json.tool a", _STARTED),
        ("python", "python -m pdb a.py", "python -m timeit 1", _STARTED),
        ("uv run", "uv run pytest --pdb", "uv run pytest -x tests", _STARTED),
        ("uv run", "uv run --frozen pytest -p evil", "uv run --frozen pytest -q", _STARTED),
        ("uv run -m", "uv run -m pytest --pdb", "uv run -m pytest -q", _STARTED),
        ("uv run", "uv run python -m pytest --pdb", "uv run python -m pytest", _STARTED),
        ("poetry run", "poetry run pytest --pdb", "poetry run pytest -q", _STARTED),
        ("poetry", "poetry -q run pytest --pdb", "poetry -q run pytest -q", _STARTED),
        ("pdm run", "pdm run pytest --pdb", "pdm run pytest -q", _STARTED),
        ("pipx run", "pipx run ruff check --config x", "pipx run ruff check src", _STARTED),
        ("uvx", "uvx ruff@0.9 check --config x", "uvx ruff check src", _STARTED),
        ("npx", "npx eslint -c x.js src", "npx eslint src", _STARTED),
        ("npx", "npx --yes eslint@9 --rulesdir x src", "npx --yes eslint --fix src", _STARTED),
        ("npx", "npx -p y jest --config x", "npx -p y jest src", _STARTED),
        ("bunx", "bunx prettier --plugin ./x.js a", "bunx prettier --check a", _STARTED),
        ("pnpm exec", "pnpm exec eslint -f ./x.js a", "pnpm exec eslint -f json a", _STARTED),
        ("pnpm", "pnpm vitest --config x", "pnpm vitest run", _STARTED),
        ("yarn", "yarn jest --globalSetup x", "yarn build --mode dev", _STARTED),
        ("npm exec", "npm exec -- jest --config x", "npm exec -- jest src", _STARTED),
        ("coverage run", "coverage run -m pytest --pdb", "coverage run -m pytest -q", _STARTED),
        ("hatch run", "hatch run test:pytest --pdb", "hatch run test:pytest -q", _STARTED),
        ("bundle exec", "bundle exec rspec -r ./x", "bundle exec rspec spec", _STARTED),
        ("busybox", "busybox sed -i s/a/b/ a", "busybox sed s/a/b/ a", _STARTED),
        ("npm", "npm explor foo -- touch x", "npm expla foo", _NPM),
        ("npm", "npm pk set scripts.test=evil", "npm pac", _NPM),
        ("npm", "npm innit", "npm install", _NPM),
        ("npm", "npm exe x", "npm outd", _NPM),
        ("npm", "npm conf set x y", "npm comp", _NPM),
        ("npm", "npm distTag add x", "npm installTest", _NPM),
        ("npm", "npm --silent publis", "npm --silent tes", _NPM),
        ("gh", "gh cs ssh", "gh pr list", _NPM),
        ("awk", "awk -W exec src/a.awk", "awk -F: '{print $1}' a", _AWK),
        ("awk", "awk -We src/a.awk", "awk -v a=1 '{print a}' a", _AWK),
        ("mawk", "mawk -We src/a.awk", "mawk '{print $1}' a", _AWK),
        ("mawk", "mawk -f a.awk", "mawk -F, '{print $1}' a", _AWK),
        ("mawk", "mawk -b '{print}' a", "mawk -v a=1 '{print a}' a", _AWK),
        ("gawk", "gawk -W load=x 1 a", "gawk --posix 1 a", _AWK),
        ("iconv", "iconv -o README.md x", "iconv -f latin1 -t utf-8 x", _MORE),
        ("mypy", "mypy --junit-xml F", "mypy --ignore-missing-imports src", _MORE),
        ("mypy", "mypy --python-executable ./x a", "mypy --python-version 3.12 a", _MORE),
        ("nm", "nm --plugin ./x.so a", "nm -C a", _MORE),
        ("bat", "bat --paging=always --pager=x a", "bat --paging=never a", _MORE),
        ("bat", "bat cache --build", "bat a", _MORE),
        ("flake8", "flake8 --config x", "flake8 --max-line-length 100 src", _MORE),
        ("pylint", "pylint --init-hook 'import x' a", "pylint --disable=C a", _MORE),
        ("pylint", "pylint -f x.Reporter a", "pylint -f json a", _MORE),
        ("pylint", "pylint --evaluation 'exit()' a", "pylint -j 4 a", _MORE),
        ("tox", "tox -x testenv.commands=x", "tox -e py312", _MORE),
        ("nox", "nox -f x.py", "nox -s tests", _MORE),
        ("pre-commit", "pre-commit try-repo x", "pre-commit run --all-files", _MORE),
        ("pyright", "pyright --pythonpath ./x", "pyright --outputjson src", _MORE),
        ("eslint", "eslint -o a.js src", "eslint --max-warnings 0 src", _MORE),
        ("jest", "jest --setupFiles=./x.js", "jest --coverage src", _MORE),
        ("vitest", "vitest --reporter=./x.js", "vitest run --reporter=verbose", _MORE),
        ("mocha", "mocha -r ./x.js", "mocha --reporter dot test", _MORE),
        ("tsc", "tsc --outFile a.js", "tsc --noEmit -p .", _MORE),
        ("rollup", "rollup -c x.js", "rollup -f es a.js", _MORE),
        ("node --test", "node --test --import ./x.js", "node --test src", _MORE),
        ("patch", "patch -e a", "patch -p1 --dry-run", _MORE),
        ("pandoc", "pandoc --lua-filter x a", "pandoc -f markdown -t html a", _MORE),
        ("pandoc", "pandoc -t ./x.lua a", "pandoc a.md", _MORE),
        ("gcc", "gcc -fplugin=./x.so a.c", "gcc -Wall -O2 -c a.c", _MORE),
        ("gcc-12", "gcc-12 -wrapper ./x a.c", "gcc-12 -c a.c", _MORE),
        ("cargo test", "cargo test -- --logfile src/a.rs", "cargo test -- --nocapture", _MORE),
        ("cargo", "cargo publish", "cargo build --release", _MORE),
        ("mvn", "mvn -Djvm=./x test", "mvn -q -Dtest=A test", _MORE),
        ("gradle", "gradle -I x.gradle", "gradle test --tests A", _MORE),
        ("ctest", "ctest -S x", "ctest -R a", _MORE),
        ("cmake", "cmake -P x.cmake", "cmake --build build", _MORE),
        ("cmake", "cmake -DCMAKE_C_COMPILER=./x .", "cmake -S . -B build -D A=1", _MORE),
        ("pytest", "pytest -p evil", "pytest -p no:cacheprovider", _MORE),
        ("docker compose", "docker compose down -v", "docker compose up -d --build", _UNKNOWN),
        ("tcpdump", "tcpdump -w F -z ./x", "tcpdump -n -i eth0", _MORE),
        ("ssh", "ssh -o ProxyCommand=x host", "ssh host", _MORE),
        ("kubectl", "kubectl exec a -- x", "kubectl get pods", _MORE),
        ("rubocop", "rubocop -r ./x.rb", "rubocop --format json", _MORE),
        ("pytest", "pytest @arguments", "pytest tests", _ARGUMENTS),
        ("mypy", "mypy @arguments", "mypy src", _ARGUMENTS),
        ("gcc", "gcc @arguments", "gcc a.c", _ARGUMENTS),
    )
)
