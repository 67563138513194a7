"""The standing part of a prompt: the instructions, files and skills that come before everything else of a request.

reading          reads one text file, with bounds and checks
files            keeps the files of `[plan.options] files` as they were last read
skills           keeps the skills of a folder, and the reasons why some cannot be used
snapshots        keeps the skills that each session began with
sections         lays out instructions, files and skills; the parts that do not change come first
session_prompts  composes the standing prompt of a session, calls its hooks, reports problems; the tool for skills
before_request   lets hooks change a request and records their changes
"""
