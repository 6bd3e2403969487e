"""The two algorithms of the paper: Bi-cADMM over nodes, and the local solvers of a node; the loop and checkpoints."""
