"""The commands that show stored records, whether the service runs or not.

perceive     shows the result of the sense pipeline for lines
memory       exports, imports, copies, moves and verifies the memory; checks the installation (`spar doctor`)
replay       decides recorded cycles again, and says or counts what differs
"""
