(assignment left: (constant) @name) @constant
(class name: (constant) @name) @class
(class name: (scope_resolution name: (constant) @name)) @class
(module name: (constant) @name) @module
(module name: (scope_resolution name: (constant) @name)) @module
(method name: [(identifier) (constant) (setter) (operator)] @name) @method
(singleton_method name: [(identifier) (constant) (setter) (operator)] @name) @method
[(identifier) (constant)] @use
