"""Workers of one organisation: processes that hold shards of its rows, while its program stays one coroutine.

A worker is handed columns, and with every question weights and signals; never a key, an id, a certificate or a line to
another party. What is asked of all of them is in `executor`, what each does with its rows in `shards`.
"""
