"""What the options of test runners, linters, type checkers and build programs mean, by hand.

The same kind of table as in `option_meanings`. Not listed are programs of which no option writes
another file than those it is for, runs a program or loads code: black, isort, shellcheck, shfmt,
clang-format, yamllint, pycodestyle, pydocstyle, vulture. That a program changes the files that it
formats or fixes (`--fix`, `--write`) is what it is for, as with `ruff check --fix`.
"""

from __future__ import annotations

from .program_arguments import ProgramArguments, describe_program

_MODULE = r"[./]"
"""A value that names a file or a module of the repository, and not a built-in one."""


def tool_programs() -> dict[str, ProgramArguments]:
    """Return what the arguments of these programs mean."""
    return {**_python_tools(), **_node_tools(), **_other_tools()}


def _python_tools() -> dict[str, ProgramArguments]:
    return {
        "python": describe_program("-i", starts="-c -m", mixed=False),
        **dict.fromkeys(
            ("pytest", "py.test"),
            describe_program(
                "--rootdir --confcutdir --override-ini -o --config-file -c --basetemp --pdbcls "
                "--pdb --trace --debug --pastebin --tx --px --rsyncdir --cov-config --ds --dc "
                "--django-configuration --driver-path --mypy-config-file --pylint-rcfile "
                "--benchmark-storage --benchmark-save --benchmark-autosave --clean-alluredir",
                "--junit-xml --junitxml --log-file --report-log --resultlog --result-log --html "
                "--css --csv --json --json-report-file --benchmark-json --benchmark-histogram "
                "--benchmark-cprofile-dump --memray-bin-path --md --md-report-output --ctrf "
                "--alluredir --store-durations --output --tracing --video --screenshot "
                "--self-contained-html --pstats-dir",
                text="-k -m --deselect --durations --maxfail --tb -W --capture",
                valued=(("--cov-report", r"^(?!term)[\w-]+:"), ("-p", r"^(?!no:)")),
                tables="pytest",
            ),
        ),
        "mypy": describe_program(
            "--config-file --python-executable --install-types --pdb --custom-typeshed-dir "
            "--custom-typing-module --shadow-file --cache-dir --bazel --package-root",
            "--junit-xml --any-exprs-report --cobertura-xml-report --html-report "
            "--linecount-report --linecoverage-report --lineprecision-report --txt-report "
            "--xml-report --xslt-html-report --xslt-txt-report --memory-xml-report "
            "--timing-stats --line-checking-stats",
        ),
        "dmypy": describe_program("--status-file --log-file --perf-stats-file", open_ended=True),
        "stubgen": describe_program("--inspect-mode", "--output -o", open_ended=True),
        "flake8": describe_program(
            "--config --append-config --require-plugins --enable-extensions",
            "--output-file",
            valued=(("--format", _MODULE),),
        ),
        "pylint": describe_program(
            "--rcfile --init-hook --load-plugins --evaluation --extension-pkg-allow-list "
            "--extension-pkg-whitelist --unsafe-load-any-extension --enable-all-extensions "
            "--spelling-store-unknown-words --spelling-private-dict-file --source-roots",
            "--output --import-graph --ext-import-graph --int-import-graph",
            valued=(("--output-format -f", r"[.:]"),),
        ),
        "bandit": describe_program("--configfile -c --ini --baseline -b", "--output -o"),
        "autopep8": describe_program("--global-config", open_ended=True),
        "coverage": describe_program(
            "--rcfile --data-file --debug --extra-css --concurrency --directory -d", "-o"
        ),
        "tox": describe_program(
            "--conf -c --override -x --root --workdir --temp-dir --result-json --installpkg "
            "--devenv --discover --default-runner --runner --import-module",
            words="exec e devenv quickstart",
            open_ended=True,
        ),
        "nox": describe_program(
            "--noxfile -f --envdir --report --extra-pythons --force-pythons --python -p -P "
            "--pythons --default-venv-backend --force-venv-backend --script-mode"
        ),
        "pre-commit": describe_program(
            "--config -c",
            words="try-repo install uninstall autoupdate init-templatedir install-hooks "
            "migrate-config hook-impl",
        ),
        "twine": describe_program(
            "--config-file --cert --client-cert --repository --repository-url --sign --sign-with",
            words="upload register",
            open_ended=True,
        ),
        "pyproject-build": describe_program(
            "--config-setting -C --config-json --outdir -o --installer", open_ended=True
        ),
        "pyright": describe_program("--pythonpath --createstub --venvpath --typeshedpath"),
        "sphinx-build": describe_program(
            "--conf-dir -c --define -D --pdb -P --doctree-dir -d", "--warning-file -w"
        ),
        "mkdocs": describe_program(
            "--config-file --site-dir --dev-addr --watch", words="gh-deploy new"
        ),
        "sqlfluff": describe_program(
            "--config --library-path", "--write-output --persist-timing", open_ended=True
        ),
        "poetry": describe_program(
            "--directory -C --project -P",
            words="config self source publish init new",
            open_ended=True,
        ),
        "pdm": describe_program(
            "--config -c --project -p --python",
            words="config self plugin publish init",
            open_ended=True,
        ),
        **dict.fromkeys(
            ("pipenv", "hatch"), describe_program("--config --python", open_ended=True)
        ),
        "jupyter": describe_program(
            "--execute --output --output-dir --config --inplace --template --template-file "
            "--post --to --writer --kernel",
            words="console lab notebook server run execute",
            open_ended=True,
        ),
        # Modules of Python, as `python -m` names them.
        "json.tool": describe_program(operands=("any", "written")),
        "cProfile": describe_program("", "-o --outfile", open_ended=True),
        "profile": describe_program("", "-o --outfile", open_ended=True),
        "trace": describe_program("--coverdir -C", "--file -f", open_ended=True),
        "zipfile": describe_program("-e --extract -c --create", open_ended=True),
        "tarfile": describe_program("-e --extract -c --create", open_ended=True),
        "pydoc": describe_program("-w -b -p -n", open_ended=True),
        "http.server": describe_program("--cgi --bind -b --directory -d", open_ended=True),
        "compileall": describe_program("-i -d -s -p", open_ended=True),
    }


def _node_tools() -> dict[str, ProgramArguments]:
    return {
        **dict.fromkeys(
            ("node", "nodejs"),
            describe_program(
                "-i --interactive -r --require --import --loader --experimental-loader "
                "--env-file --env-file-if-exists --inspect --inspect-brk --inspect-wait "
                "--inspect-port --test-reporter --openssl-config --snapshot-blob "
                "--build-snapshot --experimental-sea-config --icu-data-dir --run --watch-path "
                "--test-global-setup --cpu-prof --heap-prof --prof --perf-prof --perf-basic-prof "
                "--trace-events-enabled --trace-event-categories --heapsnapshot-signal "
                "--heapsnapshot-near-heap-limit --report-on-signal --report-on-fatalerror "
                "--report-uncaught-exception",
                "--cpu-prof-dir --cpu-prof-name --heap-prof-dir --heap-prof-name --report-dir "
                "--report-directory --report-filename --diagnostic-dir --redirect-warnings "
                "--trace-event-file-pattern --test-reporter-destination --tls-keylog",
                mixed=False,
                tables="node",
                open_ended=True,
            ),
        ),
        "deno": describe_program(
            "-A --allow-all --allow-run --allow-write --allow-read --allow-ffi --allow-net "
            "--allow-env --allow-sys --config -c --import-map --preload --env-file --inspect "
            "--inspect-brk --cert",
            "--output -o --coverage --junit-path",
            words="eval repl install upgrade compile serve task publish",
            open_ended=True,
        ),
        "bun": describe_program(
            "--preload -r --require --config -c --cwd --env-file --eval -e --print -p --inspect "
            "--import --shell --tsconfig-override",
            "--outfile --outdir --reporter-outfile --coverage-dir",
            words="repl install add create upgrade publish init patch pm",
            open_ended=True,
        ),
        "eslint": describe_program(
            "--config -c --rulesdir --plugin --parser --resolve-plugins-relative-to --init "
            "--cache-location --cache-file --env-info --flag --inspect-config --mcp",
            "--output-file -o --suppressions-location",
            valued=(("--format -f", _MODULE),),
        ),
        "prettier": describe_program(
            "--config --plugin --plugin-search-dir --cache-location", open_ended=True
        ),
        "tsc": describe_program(
            "",
            "--outDir --outFile --out --declarationDir --tsBuildInfoFile --generateTrace "
            "--generateCpuProfile",
            style="single",
            open_ended=True,
        ),
        "jest": describe_program(
            "--config -c --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv "
            "--testRunner --runner --reporters --testResultsProcessor --transform --resolver "
            "--testEnvironment --env --preset --haste --snapshotSerializers --prettierPath "
            "--rootDir --roots --cacheDirectory --watchPlugins --filter --testSequencer "
            "--modulePaths --moduleDirectories --moduleNameMapper --projects --globals --init "
            "--testEnvironmentOptions --coverageProvider --unmockedModulePathPatterns",
            "--outputFile --coverageDirectory",
            valued=(("--coverageReporters", _MODULE),),
        ),
        "vitest": describe_program(
            "--config -c --root -r --dir --globalSetup --setupFiles --runner --execArgv "
            "--inspect --inspect-brk --inspectBrk --ui --api --open --workspace --project "
            "--snapshotEnvironment --configLoader --mergeReports --diff "
            "--typecheck.checker --typecheck.tsconfig --sequence.sequencer "
            "--coverage.customProviderModule --coverage.provider --browser "
            "--browser.provider --browser.name",
            "--outputFile --coverage.reportsDirectory --attachmentsDir",
            valued=(("--reporter --environment --pool --coverage.reporter", _MODULE),),
        ),
        "mocha": describe_program(
            "--require -r --file --config --package --node-option -n --import --loader "
            "--experimental-loader --inspect --inspect-brk --compilers --opts --plugin",
            "--reporter-option --reporter-options -O",
            valued=(("--reporter -R --ui -u", _MODULE),),
        ),
        "stylelint": describe_program(
            "--config --config-basedir --custom-syntax --custom-formatter --cache-location "
            "--suppress-location",
            "--output-file",
            valued=(("--formatter", _MODULE),),
        ),
        "markdownlint-cli2": describe_program("--config --configPointer", open_ended=True),
        "webpack": describe_program(
            "--config -c --merge -m --extends -e --plugin --node-env --config-node-env "
            "--module-rules-loader --resolve-loader-alias-alias --entry --env",
            "--output-path -o --output-filename --json -j --devtool-filename",
            open_ended=True,
        ),
        "rollup": describe_program(
            "--config -c --plugin -p --configPlugin --environment --watch.onStart "
            "--watch.onBundleStart --watch.onBundleEnd --watch.onEnd --watch.onError --stdin",
            "--file -o --dir -d --output.file --output.dir",
        ),
        "esbuild": describe_program(
            "--inject --tsconfig --serve --servedir --certfile --keyfile --allow-overwrite",
            "--outfile --outdir --metafile --mangle-cache",
            open_ended=True,
        ),
        "vite": describe_program(
            "--config -c --configLoader --outDir --open --host --profile --force", open_ended=True
        ),
        "cspell": describe_program(
            "--config -c --reporter --plugin --cache-location --config-search --root -r",
            open_ended=True,
        ),
        "nodemon": describe_program("--exec -x --config --cwd --script -r", open_ended=True),
        **dict.fromkeys(
            ("ts-node", "tsx"),
            describe_program(
                "-i --interactive -r --require --import --cwd --dir --compiler -C --tsconfig "
                "--project -P",
                mixed=False,
                open_ended=True,
            ),
        ),
    }


def _other_tools() -> dict[str, ProgramArguments]:
    return {
        "rspec": describe_program(
            "--require -r -I --options -O --default-path --drb --init --bisect",
            "--out -o",
            valued=(("--format -f", r"::"),),
            open_ended=True,
        ),
        "rubocop": describe_program(
            "--require -r --config -c --plugin --cache-root --init --auto-gen-config --server "
            "--start-server",
            "--out -o",
            valued=(("--format -f", r"::"),),
            open_ended=True,
        ),
        "rake": describe_program(
            "--rakefile -f --require -r --execute -e --execute-print -p --execute-continue -E "
            "--libdir -I --rakelibdir -R --directory -C --system -g",
            open_ended=True,
        ),
        "bundle": describe_program(
            "--gemfile --path --binstubs --shebang",
            words="config plugin gem init inject open add console",
            open_ended=True,
        ),
        "phpunit": describe_program(
            "--bootstrap --configuration -c --extension --include-path -d --cache-directory "
            "--printer --loader --test-suffix --prepend --generate-configuration --stderr",
            "--log-junit --log-teamcity --log-events-text --log-events-verbose-text "
            "--testdox-html --testdox-text --testdox-xml --coverage-clover --coverage-cobertura "
            "--coverage-crap4j --coverage-html --coverage-php --coverage-text --coverage-xml "
            "--generate-baseline",
            open_ended=True,
        ),
        "phpstan": describe_program(
            "--configuration -c --autoload-file -a --debug --pro --xdebug",
            "--generate-baseline -b",
            open_ended=True,
        ),
        "composer": describe_program(
            "--working-dir -d",
            words="exec config global create-project init run-script self-update",
            open_ended=True,
        ),
        "clang-tidy": describe_program(
            "--load -load --extra-arg -extra-arg --extra-arg-before -extra-arg-before "
            "--vfsoverlay -vfsoverlay --config-file -config-file --store-check-profile -p",
            "--export-fixes -export-fixes",
            style="single",
            open_ended=True,
        ),
        "cppcheck": describe_program(
            "--addon --addon-python --clang --cppcheck-build-dir --file-list --rule-file --library "
            "--project --include --dump --platform --suppressions-list --suppress-xml",
            "--output-file --plist-output --checkers-report",
            open_ended=True,
        ),
        "ctest": describe_program(
            "-S --script -SP --script-new-process -D --dashboard -M --test-model -T --test-action "
            "--build-and-test --build-exe-dir --build-generator --build-makeprogram "
            "--build-options --test-command --overwrite --build-target -A --add-notes "
            "--extra-submit --submit-index",
            "-O --output-log --output-junit",
            style="single",
        ),
        "cmake": describe_program(
            "-P -E -C --preset --toolchain --install-prefix --debugger --debugger-pipe "
            "--debugger-dap-log --trace-redirect --graphviz --system-information "
            "--profiling-output",
            valued=(
                (
                    "-D",
                    "COMPILER|LAUNCHER|LINKER|PROGRAM|TOOLCHAIN|EXECUTABLE|COMMAND|FLAGS|INCLUDE"
                    "|_PATH|PREFIX|DIRECTORY",
                ),
            ),
            open_ended=True,
        ),
        "ninja": describe_program("-f -t", open_ended=True),
        "just": describe_program(
            "--justfile -f --shell --shell-arg --shell-command --command -c --working-directory -d "
            "--set --dotenv-path --dotenv-filename --choose --chooser --edit --init "
            "--global-justfile -g --cygpath",
            open_ended=True,
        ),
        "task": describe_program("--taskfile -t --dir -d --init --global -g", open_ended=True),
        "kubectl": describe_program(
            "--kubeconfig --server -s --token --client-key --client-certificate --cache-dir --as "
            "--filename -f --kustomize -k --profile-output --raw",
            words="apply attach auth cp create debug delete edit exec expose label annotate patch "
            "plugin port-forward proxy replace run scale set taint drain cordon config rollout "
            "autoscale certificate krew",
            open_ended=True,
        ),
        "helm": describe_program(
            "--post-renderer --kubeconfig --registry-config --repository-config --output-dir "
            "--kube-token --key-file --cert-file",
            words="install upgrade uninstall rollback plugin push registry repo create delete",
            open_ended=True,
        ),
        "terraform": describe_program(
            "-chdir -out -state -state-out -backup -var-file -plugin-dir -backend-config",
            words="apply destroy import console init state taint untaint login logout workspace",
            style="single",
            open_ended=True,
        ),
        "hg": describe_program(
            "--config --cwd --repository -R --debugger --encoding --tool --ssh --remotecmd "
            "--output -o --template -T",
            open_ended=True,
        ),
        "codespell": describe_program("--interactive --config --toml"),
    }
