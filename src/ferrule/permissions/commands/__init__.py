"""What a shell command would do, as far as its text says. Nothing runs and nothing is opened here.

Modules: `analysis`, `bash_builtins`, `bash_parser`, `hazards`, `implicit_evaluation`,
`option_parsing`, `path_arguments`, `program_arguments`, `program_facts`, `risk_labels`,
`shell_words`, `simple_commands`, `syntax`, `working_directory`, `wrappers`.
"""
