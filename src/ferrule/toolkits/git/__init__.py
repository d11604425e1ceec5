"""Git: `git_command` for reading, and single operations as typed tools with receipts.

Modules:
    plugin               the plugin `git`
    tools                tools for agents: `git_tools`, `git_toolbox_tools`
    git_command, options `git_command`, and the options it passes on
    catalog, finder      the operations, and finding the one that is meant
    read_operations, staging, branch_operations        the operations
    affected_files, withheld_files, file_access        what may be written, read, and used
    readable_repository, writable_repository, remote   the repository as git sees it
    run, refs, settings  running git, names of commits, settings read as data
    commit_hooks         hooks of the repository, for `git_commit`
    attempt, receipt     the result of a call
"""
