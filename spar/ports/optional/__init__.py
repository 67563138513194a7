"""Optional ports of parts: one Protocol of one to three members for each ability that a part may offer besides its
phase, and `offers`, which tells whether a part has one.

The core does not call a port that a part lacks. A method may be a plain function where nothing else is stated; a method
that is awaited is declared `async`. The ports of a store are in `spar.ports.store`.

any_part  tells whether a part has a port; ports of any part
sense     ports of a sense module
plan      ports of a planner
act       ports of an actor, its approvals and its tools, and of a reflector
"""
