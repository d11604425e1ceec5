# Everything a person or a machine does with this repository. `make` alone lists it.
# Needs Python 3.11 or newer with venv and pip, make and git; what else is needed is put into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2
CHECK ?= yes

# The wheel of pyright carries the checker and a wheel carries node: nothing is looked up or downloaded when it runs.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# The tests start hundreds of processes: what Python compiled is kept, whatever the machine says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

venv: $(READY) ## a virtual environment with everything, made once

$(READY): pyproject.toml
	@test "$(CHECK)" = no || sh .ci/check-machine "$(PYTHON)"
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@# uv takes half of pip's time; what it cannot do here, pip can.
	@$(BIN)/python -m pip install --quiet uv && \
		cache=$$($(BIN)/uv cache dir) && \
		{ { mkdir -p "$$cache" 2>/dev/null && test -w "$$cache"; } || export UV_NO_CACHE=1; } && \
		$(BIN)/uv pip install --quiet --link-mode copy --compile-bytecode --python $(BIN)/python 'pip>=25.1' --editable '.[all]' --group dev || { \
		echo "uv cannot install here: pip does it, which takes longer" >&2; \
		$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && \
		$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev; }
	@$(BIN)/rg --version >/dev/null 2>&1 || rg --version >/dev/null || { \
		echo "missing: ripgrep, whose wheel does not run here; install the package ripgrep" >&2; exit 1; }
	@touch $@

demo: $(READY) ## a model of 135M parameters on this machine reads, searches and edits a file by calling tools
	$(BIN)/ferrule models pull smollm2
	$(BIN)/python examples/demo.py

test: lint types unit ## everything that must pass

lint: $(READY) ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## types, strictly
	$(BIN)/pyright

unit: $(READY) ## the tests
	$(BIN)/pytest -n $(JOBS) --dist worksteal

anywhere: $(READY) ## both commands for users, systems, Pythons and folders that this machine can make; as root (ARGS="--only '*container*' --write")
	PYTHONPATH=evals $(BIN)/python -m anywhere $(ARGS)

options: $(READY) ## the tables of programs' options, from the help of the programs that are installed here
	$(BIN)/python docs/make_option_tables.py

ordinary: $(READY) ## ordinary commands of a developer's day: how many are decided as a person expects
	$(BIN)/pytest -q -p no:cacheprovider tests/permissions/test_ordinary_commands.py

options-oracle: $(READY) ## every spelling of every option, tried on the real programs in a sandbox: what did something must be seen
	FERRULE_TEST_ATTACKS=all $(BIN)/pytest -q -s -p no:cacheprovider tests/attacks/test_option_effects.py tests/permissions/test_options.py

promises: $(READY) ## what is promised, what proves it, and what is put off
	$(BIN)/pytest -s -p no:cacheprovider tests/repository/test_promises.py

bench: $(READY) ## what Ferrule itself costs
	$(BIN)/python benchmarks/run.py

first-answer: $(READY) ## `ferrule run` of one question to a stub, from start to end (ARGS="--llm ENV/bin/llm": beside `llm`)
	$(BIN)/python benchmarks/first_answer.py $(ARGS)

bench-peers: ## what others cost, beside Ferrule, in environments of their own (an hour)
	$(PYTHON) benchmarks/peers/envs.py
	$(PYTHON) benchmarks/peers/run.py --out build/peers.json
	$(PYTHON) benchmarks/peers/goals.py build/peers.json --page docs/speed.md
	$(PYTHON) benchmarks/peers/report.py build/peers.json

turn-costs: ## turns, 500 runs at once and the cold start beside the same loop over raw sockets
	$(PYTHON) benchmarks/peers/envs.py stub sockets ferrule
	$(PYTHON) benchmarks/peers/run.py --adapters sockets,ferrule --metrics turns50,conc500,cold --rounds 5 --out build/turn-costs.json
	$(PYTHON) benchmarks/peers/goals.py build/turn-costs.json

turn-instructions: $(READY) ## the same in instructions, which other work does not change (ARGS="--before OTHER/src"; needs valgrind)
	$(BIN)/python benchmarks/peers/envs.py stub
	$(BIN)/python benchmarks/peers/instructions.py $(ARGS)

durable: $(READY) ## durable runs on PostgreSQL beside the peers: in one process, by workers (ARGS="--systems ferrule_pg --rtt 2")
	$(PYTHON) benchmarks/durable/environments.py
	$(PYTHON) benchmarks/durable/environments.py --run stub run.py $(ARGS)

mcp-calls: $(READY) ## calls a second of `ferrule serve mcp` beside the official SDK's server and fastmcp
	$(PYTHON) benchmarks/durable/environments.py mcp
	$(PYTHON) benchmarks/durable/environments.py --run mcp mcp_calls.py --ferrule "$(CURDIR)/$(BIN)/ferrule" $(ARGS)

shape: $(READY) ## the shape of the code as figures (ARGS="COMMIT --peer h11" measures beside it)
	$(BIN)/python benchmarks/shape.py $(ARGS)

soak: $(READY) ## a thousand commands, a hundred at once: what is left of them
	$(BIN)/python benchmarks/soak.py

streams: $(READY) ## every model client: thousands of legal answers, cut anywhere, with anything behind their end
	FERRULE_TEST_STREAMS=2000 $(BIN)/pytest -n $(JOBS) --dist worksteal tests/models/test_answer_streams.py

growth: $(READY) ## what things cost as sessions, files, tools, outputs and runs grow: slopes and curves (ARGS="turns files --write")
	$(BIN)/python -m pip install --quiet --group lab
	$(BIN)/python benchmarks/growth.py $(ARGS)

many-agents: $(READY) ## 5,000 agents, a fifth of them cancelled: descriptors, threads, tasks and memory that are left
	$(BIN)/python benchmarks/many_agents.py

forks: $(READY) ## 200 forks of a process whose threads run agents: each child runs one too
	FERRULE_TEST_FORKS=200 $(BIN)/pytest -q -p no:cacheprovider tests/engine/test_forked_processes.py

attacks: $(READY) ## every row of every table of attacks
	FERRULE_TEST_ATTACKS=all $(BIN)/pytest -n $(JOBS) --dist worksteal tests/attacks tests/toolkits/git

rights: $(READY) ## 20,000 random machines: what commands really read and write is within what the rules say
	FERRULE_RIGHTS_TREES=20000 $(BIN)/pytest -q -n $(JOBS) -p no:cacheprovider tests/sandbox/test_rights_model.py

marks: $(READY) ## calls in the legal form of every model family, with marks of all of them in their values: 1,000 cases of each form
	FERRULE_MARK_CASES=1000 $(BIN)/pytest -n $(JOBS) -p no:cacheprovider tests/models/test_dialect_values.py
fuzz: $(READY) ## 200,000 shell programs, run by bash and read by us (ARGS="--seconds 600" stops, the same again goes on)
	PYTHONPATH=tests $(BIN)/python -m shell_fuzz --programs 200000 --workers $(JOBS) --state build/fuzz.json $(ARGS)

crash: $(READY) ## kill -9 at every write of the journal and between 600 pairs of system calls
	FERRULE_KILL_POINTS=600 $(BIN)/pytest -n $(JOBS) -p no:cacheprovider tests/engine/test_crash.py tests/engine/test_kill_points.py

replays: $(READY) ## 200 runs of the local model, recorded, then replayed offline
	$(BIN)/ferrule models pull smollm2
	$(BIN)/python benchmarks/sessions.py replays 200

scale: $(READY) ## 500 runs on four workers and a PostgreSQL: two killed, one frozen, the database restarted
	$(BIN)/python benchmarks/scale.py

subscribers: $(READY) ## 500 live readers of the console over loopback, ten of them slow
	$(BIN)/python benchmarks/subscribers.py

chat-painting: $(READY) ## an answer of 10,000 tokens in `ferrule chat`: how many repaints, and their share of a core
	$(BIN)/pytest -q -s -p no:cacheprovider tests/interfaces/test_chat_markdown.py -k ten_thousand_streamed_tokens

bus: $(READY) ## 500 subscribers, 10,000 events
	$(BIN)/python benchmarks/bus.py

idle-sessions: $(READY) ## 10,000 idle sessions in one server: memory of each, with all that the server keeps (ARGS=1500)
	$(BIN)/python benchmarks/idle_sessions.py $(ARGS)

many-sessions: $(READY) ## a journal of 200,000 sessions: first page, search by words, resume, verify
	$(BIN)/python benchmarks/many_sessions.py $(ARGS)

argument-deltas: $(READY) ## deltas of arguments that watchers see while they arrive, beside deltas of text (ARGS=20000)
	$(BIN)/python benchmarks/argument_deltas.py $(ARGS)

year-of-use: $(READY) ## a million events in one journal: written, verified, vacuumed, bytes an event (ARGS=100000)
	$(BIN)/python benchmarks/year_of_use.py $(ARGS)

file-search: $(READY) ## `search_files` beside ripgrep alone, over Python's library with its site-packages
	$(BIN)/python benchmarks/file_search.py $(ARGS)

file-listing: $(READY) ## `file_tree`, `list_files` and `git_command` on 100,000 files beside fd and git (ARGS="--fd PROGRAM")
	$(BIN)/python benchmarks/file_listing.py $(ARGS)

code-index: $(READY) ## the code index on more than 10,000 files: files a second, memory, turns beside it, freshness, and ten questions about Django
	$(BIN)/python benchmarks/code_index.py build/code-index --install --questions build/code-index/python/django $(ARGS)

files: $(READY) ## tool files, scripts, conditions and answers of hooks: 100,000 cases of each property
	FERRULE_FILE_CASES=100000 FERRULE_FUZZ=100000 $(BIN)/pytest -p no:cacheprovider tests/extensions/test_front_matter.py \
		tests/extensions/test_starlark_properties.py tests/extensions/test_checking.py tests/extensions/hooks/test_when.py tests/extensions/hooks/test_commands.py

docs: $(READY) ## the pages that are made from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_architecture.py
	$(BIN)/python docs/make_walks.py

readme: $(READY) ## transcripts and figures of the pages from programs that run now, and the three lines of the README about speed
	$(BIN)/python docs/make_readme.py

screens: $(READY) ## the terminals that pages show, from real commands and chats
	$(BIN)/python docs/screens/make_recording.py
	$(BIN)/python docs/screens/make_screens.py

site: $(READY) ## the documentation as a site, in build/site; a dead link ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

mcp-servers: $(READY) ## real MCP servers from npm and PyPI, from the blocks of their READMEs: started confined, listed, called
	PATH="$$PATH:$(CURDIR)/$(BIN)" $(BIN)/python evals/mcp_servers.py $(ARGS)

PORTABLE_TESTS = tests/permissions/test_workspace.py tests/sandbox/test_launcher.py tests/extensions/test_starlark.py \
	tests/toolkits/test_process.py tests/toolkits/test_files.py tests/toolkits/test_browse.py tests/toolkits/test_search.py \
	tests/toolkits/test_git.py tests/storage/test_trust.py

portable: $(READY) ## what other systems run, tried here without the calls that only Linux has; a skipped test says why
	FERRULE_PORTABLE=1 $(BIN)/pytest -rs -o cache_dir=.pytest_cache/portable -n $(JOBS) --dist worksteal $(PORTABLE_TESTS)

foreign: $(READY) ## published hooks, skills and OpenAPI documents as they are, and the tables of docs/foreign-material.md (ARGS="hooks cchooks -v")
	PYTHONPATH=evals $(BIN)/python -m foreign $(ARGS)

eval: $(READY) ## how well models call tools
	$(BIN)/python evals/run.py

eval-small: $(READY) ## what a very small model is worth with help, without it, and the help without the model (ARGS="--sample 0": not samples)
	$(BIN)/ferrule models pull smollm2
	$(BIN)/ferrule models pull gemma3-270m
	nice $(BIN)/python evals/small.py $(ARGS)

eval-small-turns: $(READY) ## what small models cost: tokens read in each turn of a conversation, seconds of a call, memory, first answer
	$(BIN)/ferrule models pull smollm2
	$(BIN)/ferrule models pull gemma3-270m
	nice $(BIN)/python evals/small.py --turns $(ARGS)

eval-small-peers: $(READY) ## the same small models on the same server through pydantic-ai and LangChain, in environments of their own
	$(BIN)/ferrule models pull smollm2
	$(BIN)/ferrule models pull gemma3-270m
	PYTHONPATH=evals nice $(BIN)/python -m small_peers $(ARGS)

eval-native: $(READY) ## native tool calls of a real model file: streaming, two calls in one answer, reasoning apart, a second turn (477 MB)
	$(BIN)/ferrule models pull qwen2.5-coder-0.5b
	nice $(BIN)/python evals/native_calls.py $(ARGS)

CASES = evals/cases/shop.cases.yaml -m local:smollm2 -m scripted:evals/cases/shop.answers.yaml
eval-cases: $(READY) ## thirty cases by the local model and by a script, then without `read_file`: what became worse, by name
	$(BIN)/ferrule models pull smollm2
	@mkdir -p build
	$(BIN)/ferrule eval $(CASES) --at-least 80% -o build/cases.json
	-FERRULE_TOOLS_DENIED=read_file $(BIN)/ferrule eval $(CASES) -o build/cases-without.json
	-$(BIN)/ferrule eval --compare build/cases.json build/cases-without.json

edits: $(READY) ## real changes as edits, with the mistakes that models make: landed right, refused with the place shown, landed wrong (must be 0)
	PYTHONPATH=evals $(BIN)/python -m edits $(ARGS)

checkers: $(READY) ## mypy, pyright, tsc, eslint, go vet, cargo check, gcc, ruff and four language servers after real edits (ARGS="mypy cargo")
	$(BIN)/python evals/checkers.py $(ARGS)

commands: $(READY) ## 219 commands as agents write them, after one approval of the folder: which ran, asked, were refused (ARGS="--only xargs")
	PYTHONPATH=evals $(BIN)/python -m agent_commands $(ARGS)

faults: $(READY) ## runs that finish in spite of a model's poor habits, with Ferrule and with the peers that are installed (ARGS="--only in-tags --seeds 4")
	PYTHONPATH=evals $(BIN)/python -m faults $(ARGS)

adapters: $(READY) ## the adapters with each framework's own test model, and tools of LangChain's community and of `llm` plugins, in environments of their own (ARGS="langchain --fresh")
	PYTHONPATH=evals $(BIN)/python -m adapters $(ARGS)

first-hour: $(READY) ## the first hour of somebody new: from a wheel to an answer, an edit, a test, an MCP server, an undo and the browser
	$(BIN)/python tests/acceptance/first_hour.py --write

ag-ui-client: $(READY) ## the client of AG-UI from npm, in an environment of its own, talks to `ferrule serve ag-ui`
	PATH="$$PATH:$(CURDIR)/$(BIN)" $(BIN)/python evals/ag_ui_client.py

notebook: $(READY) ## execute examples/notebook.ipynb and keep its outputs
	$(BIN)/python docs/make_notebook.py

axe: $(READY) ## axe-core, from npm, looks at every page of the console in Chromium, wide and narrow, light and dark
	$(BIN)/python evals/console_axe.py

coming-from: $(READY) ## the programs for other libraries that pages show, each in an environment with the versions that the page names
	$(BIN)/python evals/coming_from.py $(ARGS)

outputs: $(READY) ## typed answers under poor manners: 40 types, 4 modes, streamed or not; no wrong value; then with peers on one server (ARGS="--alone", "--write")
	PYTHONPATH=evals $(BIN)/python -m outputs $(ARGS)

partial-values: $(READY) ## what partial values of an answer of 200 KB cost, beside one validation and beside Pydantic AI's
	PYTHONPATH=evals $(BIN)/python -m outputs.partial

extract: $(READY) ## 60 small texts into flat schemas by the embedded model, by grammar and by prompt: fields right, seconds
	$(BIN)/ferrule models pull smollm2
	$(BIN)/python evals/extract.py $(ARGS)

tokens: $(READY) ## what costs tokens: system text and tools of each profile, and outputs of programs before and after
	$(BIN)/python evals/tokens.py

mutants: $(READY) ## breaks code that promises rest on, and runs the tests that prove them: 400 breakages (ARGS="--count 40 --seed 7")
	PYTHONPATH=evals nice $(BIN)/python -m mutants $(ARGS)

clean: ## what can be made again
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
