"""Does it get better by what it remembers? `python -m benchmarks.learning --data FOLDER` prints one table.

Each measure is lived with memory on, off and only observing, with the same seeds; then in a second process that goes
on with the memory of the first, where the switch is turned as well. `--write` puts table and plot into
`docs/learning.md`. A measure whose data are not in the folder says so.

    gain        a line for each measure, and the table
    worlds      the worlds that are lived in, each by its name
    life        one life in a process of its own
    lived       the lives that a measure needs, each in a process of its own
    measures    what is counted of the lives
    plot        the curves, drawn as SVG
    page        the generated part of docs/learning.md
    recall      questions about conversations, answered from memory
    memories    the same with vectors, among 100,000 experiences, and after a month
    conversations  those conversations, as public data sets have them
"""
