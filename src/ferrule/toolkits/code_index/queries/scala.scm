(val_definition pattern: (identifier) @name) @variable
(var_definition pattern: (identifier) @name) @variable
(class_definition name: (identifier) @name) @class
(object_definition name: (identifier) @name) @object
(trait_definition name: (identifier) @name) @trait
(enum_definition name: (identifier) @name) @enum
(simple_enum_case name: (identifier) @name) @constant
(function_definition name: (identifier) @name) @function
(function_declaration name: (identifier) @name) @function
(template_body (function_definition name: (identifier) @name) @method)
(template_body (function_declaration name: (identifier) @name) @method)
(type_definition name: (type_identifier) @name) @type
[(identifier) (type_identifier)] @use
