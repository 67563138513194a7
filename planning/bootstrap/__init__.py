"""The standing part of a prompt: what a model is told before anything of a request.

reading          reads one text file: bounded, regular, whole
files            keeps the files of `[plan.options] files` as they were last read
skills           keeps the skills of a folder, and why some cannot be used
snapshots        keeps the skills that each session began with
skill_tool       brings a skill's instructions to the model
sections         lays out instructions, files and skills, what stays the same first
session_prompts  composes that of a session, shows hooks its files, tells what is wrong
outline          tells what stands in a request, by part, size and origin
before_request   lets hooks change a request, and says what they did
"""
