package reminder

// Definition is what Kind is made of.
var Definition = definition
