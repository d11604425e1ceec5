"""Tools that read, write, edit and list the files of the workspace.

Modules:
    plugin            the plugin `files`
    tools             read_file, read_file_tail, write_file, edit_file and the other file tools
    browse            list_files, file_tree, file_outline
    edits             changes to a file: how they are made and previewed
    edit_matching     finding the places that an edit means, by grades
    edit_carryover    the new text as the place has it: indentation, line ends, look-alikes
    edit_application  several edits of a text, all or none
    edit_refusals     why an edit was not made, and what to send instead
    patch, patch_tool apply_patch: patches read, and made calls of the tools above
    lines             text as lines, to the byte
    diff              the unified diff that an approval shows
    outline           the definitions in a source file
    preview           previews that never fail
    read_versions     what the session has read, to detect changes by others
    rereading         what a second reading of the same lines need not repeat
    reading           reading some lines of a file of any size
"""
