"""The built-in tools, one module each, registered by entry points like tools of other packages.

files   reads and changes files in one folder of the workspace
http    makes one HTTP request
note    writes one dated entry
notify  notifies people through every configured way
say     tells people something while a run goes on
shell   runs one program with arguments, never a shell string; programs of skills

file_operations  reads, lists, writes, copies, moves or deletes one file or folder; the names that no tool may change
"""
