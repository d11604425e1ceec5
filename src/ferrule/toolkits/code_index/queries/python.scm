; `@name` is the name of a definition, the other capture its extent and its kind. `@use` is a name
; that is used. A pattern further down wins over one above it for the same name.
(module (expression_statement (assignment left: (identifier) @name) @variable))
(function_definition name: (identifier) @name) @function
(class_definition body: (block (function_definition name: (identifier) @name) @method))
(class_definition body: (block (decorated_definition (function_definition name: (identifier) @name) @method)))
(class_definition name: (identifier) @name) @class
(type_alias_statement left: (type (identifier) @name)) @type
(identifier) @use
