"""The two algorithms of the paper: Bi-cADMM over nodes, the local solvers of a node; their loop and checkpoints."""
