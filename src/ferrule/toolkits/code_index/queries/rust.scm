(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @impl
(impl_item body: (declaration_list (function_item name: (identifier) @name) @method))
(trait_item body: (declaration_list (function_item name: (identifier) @name) @method))
(trait_item body: (declaration_list (function_signature_item name: (identifier) @name) @method))
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(trait_item name: (type_identifier) @name) @trait
(type_item name: (type_identifier) @name) @type
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @variable
(mod_item name: (identifier) @name) @module
(macro_definition name: (identifier) @name) @macro
[(identifier) (type_identifier) (field_identifier) (shorthand_field_identifier)] @use
