"""The proof by killing: an agent is killed wherever it can be, started again, and judged from outside.

`python -m tests.faults accept` (or `make accept`) runs all of it and prints one table;
`docs/explanation/reliability.md` says how to read it. The parts: workloads are what the agent does meanwhile; ledgers
are what the world outside knows of that; the zygote starts processes fast; `oracle` compares; `sweep` says who is
killed where; `seeded` are bugs that must be found. `starts` (`make starts`): services start on busy cores.
"""
