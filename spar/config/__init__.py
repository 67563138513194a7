"""Configuration: from the text of `config.toml` to settings.

tables/    the tables of `config.toml`: each setting with its type, its default and the reason for it; plain values,
           which pydantic validates by their annotations
refusals   turns the errors of pydantic into one sentence each
load       reads file, environment and command line, merges them by pydantic-settings, and shows the present settings
lines      finds and reads the file, and says where a wrong value stands
toml_lines finds the line of each value in the text, and says what is wrong with its syntax
in_force   configurations that were in force, kept once under their digest, and how two of them differ
"""
