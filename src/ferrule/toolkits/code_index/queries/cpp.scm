(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (reference_declarator (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (function_declarator declarator: (field_identifier) @name)) @method
(function_definition declarator: (reference_declarator (function_declarator declarator: (field_identifier) @name))) @method
(function_definition declarator: (function_declarator declarator: (qualified_identifier name: (identifier) @name))) @method
(function_definition declarator: (reference_declarator (function_declarator declarator: (qualified_identifier name: (identifier) @name)))) @method
(declaration declarator: (function_declarator declarator: (identifier) @name)) @declaration
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @declaration
(class_specifier name: (type_identifier) @name body: (_)) @class
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @struct
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(enumerator name: (identifier) @name) @constant
(namespace_definition name: (namespace_identifier) @name) @module
(type_definition declarator: (type_identifier) @name) @type
(alias_declaration name: (type_identifier) @name) @type
(concept_definition name: (identifier) @name) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
[(identifier) (type_identifier) (field_identifier) (namespace_identifier)] @use
