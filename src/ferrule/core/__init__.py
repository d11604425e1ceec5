"""Values and the state machine of a session: what a run is, without any I/O.

Nothing in here reads a clock, starts a thread or imports a third-party library.

Modules:
    machine                what happens next in a session
    call_states            the state of each call, and which calls may start
    compaction             what of a history the model is sent
    events, record_events  everything that can happen, as journals store it
    vocabulary             the words that fields of events may have
    commands               what the machine asks its driver to do
    media                  pictures, sounds and documents in messages, as references
    calls, messages        calls and results, and the history that models read
    notices                messages that reach the model while it works
    join_policy            how many calls of a turn must succeed
    required_tools         tools that must succeed for a run to count as done
    output                 what a run must end with, and answers that did not fit
    limits                 bounds of a run
    identity               who a run is for
    callbacks              functions given as options, checked where they are given
    refusals               who can refuse a call, for records and people
    errors, extras         the exceptions; which extra brings a library that is missing
    value_class            the decorators for value classes
    invisible_characters   spells out characters that a reader would not see
    web_addresses          splits http and https addresses
    similar_names          what a misspelled name may mean
    lazy_names             public names of a package, loaded on first use
    lazy_patterns          regular expressions compiled on first use
"""
