package reminder

// Definition is the definition that Kind uses.
var Definition = definition
