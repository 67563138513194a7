"""The tables of `config.toml`: each setting with its type, its default and the reason for it.

agent      `[agent]` and `[health]`
runs       `[runs]` and `[sessions]`
calls      `[acting]` and `[approval]`
budgets    `[budgets]`
service    `[memory]`, `[service]` and `[log]`
parts      the tables that name a part and its options
amounts    the type of a budget's amount: a count, money, or "off"
section    a table in general
"""
