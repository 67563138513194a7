"""The configuration: from the text of `config.toml` to settings and parts.

tables/    the tables of `config.toml`: each setting with its type, its default and the reason for it; plain values
judge      the judgement of tables by pydantic, made from their annotations
refusals   what pydantic refuses, in one sentence
load       reads file, environment and command line, and shows the settings in effect
sources    the order in which they count; pydantic-settings merges them
given      reads settings that are given as text: environment variables and `--set`
lines      finds and reads the file, and says where a value that is wrong stands
toml_lines  finds the line of each value in the text
registry   finds the parts that configuration can name, and builds them from their options
signature  reads the signature of a constructor as the description of its options
factory    builds the parts that the settings name
defaults   builds the modules of an agent for which nothing was given
schema     generates the JSON schema of `config.toml` for editors
"""
