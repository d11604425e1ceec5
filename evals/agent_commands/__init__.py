"""Commands as agents write them: what a person expects of each, and what becomes of it.

Modules:
    gate     decides each as after one approval of the folder, without running it
    project  the small project that they are about
    trial    runs each in the default settings of a terminal
"""
