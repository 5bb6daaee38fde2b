"""Recurrences as functions of tensors, one folder each: a definition and, for some, a parallel form."""
