"""Training loops as each backend's own users write them: a module per framework and backend.

`scripts(bench)` of a module makes the loops of a launch, name -> `Loop`. The first is the one that counts; the others
say where a difference comes from, or are a second interface of our own.
"""
