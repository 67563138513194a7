"""Tables of `config.toml`: each setting with its type, its default and the reason for it.

settings  `[memory]`, `[service]`, `[log]`, `[tracing]`, the tables that name a part, and all tables together
agent     `[agent]`, `[health]`, `[runs]`, `[sessions]`, `[acting]`, `[approval]`, `[budgets]`, `[senders]`
secret    a secret that stands in a file, the environment or a credential of systemd
section   a table in general, and the types of single values: durations, whole numbers
"""
