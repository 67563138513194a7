"""Parts: from settings to the objects that they name.

registry  finds the parts that configuration can name, and builds them from their options, which the signature of their
          constructor describes
factory   the composition root: builds the parts that the settings name, and checks that they fit
defaults  settings and modules of an agent made by hand; its standard actor and reflector, made by the first action
schema    generates the JSON schema of `config.toml`, with the options of all parts, for editors
"""
