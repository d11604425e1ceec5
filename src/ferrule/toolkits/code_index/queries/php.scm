(namespace_definition name: (namespace_name) @name) @module
(function_definition name: (name) @name) @function
(class_declaration name: (name) @name) @class
(interface_declaration name: (name) @name) @interface
(trait_declaration name: (name) @name) @trait
(enum_declaration name: (name) @name) @enum
(enum_case name: (name) @name) @constant
(method_declaration name: (name) @name) @method
(property_declaration (property_element name: (variable_name (name) @name))) @property
(const_declaration (const_element (name) @name)) @constant
(name) @use
