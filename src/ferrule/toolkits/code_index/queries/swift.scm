(source_file (property_declaration name: (pattern bound_identifier: (simple_identifier) @name)) @variable)
(class_body (property_declaration name: (pattern bound_identifier: (simple_identifier) @name)) @property)
(class_declaration name: (type_identifier) @name) @class
(protocol_declaration name: (type_identifier) @name) @protocol
(function_declaration name: (simple_identifier) @name) @function
(class_body (function_declaration name: (simple_identifier) @name) @method)
(protocol_function_declaration name: (simple_identifier) @name) @method
(enum_entry name: (simple_identifier) @name) @constant
(typealias_declaration name: (type_identifier) @name) @type
[(simple_identifier) (type_identifier)] @use
