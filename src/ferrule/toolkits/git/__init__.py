"""Git: `git_command` for reading, and single operations as typed tools with receipts.

Modules:
    plugin               the plugin `git`
    tools                tools for agents: `git_tools`, `git_toolbox_tools`
    git_command, options `git_command`, and the options it passes on
    catalog, finder      the operations, and finding the one that is meant
    read_operations, staging, branch_operations        the operations
    mutations            what operations that change something share
    affected_files, withheld_files, remote             what may be written, read, and reached
    run, git_shell       running git in the sandbox of the session, those of an operation together
    unconfined_reads     reading without a sandbox
    refs, settings       names of commits, settings read as data
    attempt, receipt     the result of a call
"""
