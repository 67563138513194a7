"""Templates of log lines: ten thousand lines of one kind become one perception.

collapse   the stage: one perception for the lines of a template, with count, rate and examples
tree       the known templates: found by their words, merged where one word varies; bounded
masking    the words of a line with the varying ones masked, and a template in a form for people
"""
