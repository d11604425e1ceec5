"""Real changes of files, sent as edits with the mistakes that models make, and what becomes of them.

Modules:
    changes   changes of a text as edits: hunks with as much context as makes them unique
    sources   where changes come from: the history of a repository, successive versions of packages
    mistakes  the mistakes, and what must become of an edit that has one
    trial     sends an edit and says what came of it
    page      the tables in the page, whole or only the rows that were made again
"""
