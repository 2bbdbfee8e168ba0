"""How the functions in `kernels/` become machine code, which is kept and loaded again."""
