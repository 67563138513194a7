"""Pure functions and values over data: no clock, no tasks, no I/O.

paths       parses and follows references (`†state.disks.0.name`) and output paths; indexes their readers and writers
reducers    folds writes into a value by the five output methods
blackboard  the data that calls read and write while they run, by kind
json_safe   copies any value into JSON values, bounded
media       names images, sound and other blobs inside values
json_schema validates values by a JSON schema that a stranger wrote
patterns    compiles and matches patterns in time linear in the text
bounded     a dictionary of bounded size that drops the oldest
reply       decides which of a run's texts people read as its answer
scrub       removes secrets from text and tables
skills      skills in the Agent Skills format
learning/   the names of situations; the ability of a tool at a task
text_blocks splits a text that is being written into blocks of message size; the signs of calls
text        draws text and values so that nothing in them hides, moves or imitates other text; compares texts
"""
