(source_file (property_declaration (variable_declaration (identifier) @name)) @variable)
(class_body (property_declaration (variable_declaration (identifier) @name)) @property)
(class_declaration name: (identifier) @name) @class
(object_declaration name: (identifier) @name) @object
(function_declaration name: (identifier) @name) @function
(class_body (function_declaration name: (identifier) @name) @method)
(enum_entry (identifier) @name) @constant
(type_alias type: (identifier) @name) @type
(identifier) @use
