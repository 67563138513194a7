"""Tables of `config.toml`: each setting with its type, its default and the reason for it.

settings  all tables together
agent    `[agent]`, `[health]`, `[runs]`, `[sessions]`, `[acting]`, `[approval]`, `[senders]`
budgets  `[budgets]`, and the type of its amounts: a count, money, or "off"
service  `[memory]`, `[service]`, `[log]` and `[tracing]`
parts    the tables that name a part and its options
secret   a secret that stands in a file, the environment or a credential of systemd
section  a table in general, and the types of single values: durations, whole numbers
"""
