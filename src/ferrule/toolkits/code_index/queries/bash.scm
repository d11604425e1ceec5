(program (variable_assignment name: (variable_name) @name) @variable)
(program (declaration_command (variable_assignment name: (variable_name) @name) @variable))
(function_definition name: (word) @name) @function
(command name: (command_name (word) @use))
(variable_name) @use
