"""The standing part of a prompt: what a model is told before anything of a request.

reading   reads one text file: bounded, regular, whole
files     keeps the files of `[plan.options] files` as they were last read
sections  lays out instructions, files and skills, what stays the same first
standing  composes that of a session, asks its hooks, tells what is wrong
"""
