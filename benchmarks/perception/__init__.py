"""How well SENSE perceives: `python -m benchmarks.perception --data FOLDER` prints one table, owed beside seen.

The data are public and not part of the repository; a measure whose data are not in the folder says so. Weights and
thresholds are chosen on one part of the data and reported on the others; the remark of a line says which.

    quality     a line for each goal, and the table
    streams     lines of the 16 systems of loghub, as they were written
    grouping    which lines are of one event, beside Drain3
    nab         the score of the Numenta Anomaly Benchmark
    anomalies   the detector on that benchmark, beside its scoreboard
    drawn       the detector on drawn series, beside ten lines of running medians
    distinct    things of one look that are not one
    heard       events of which a person hears, of those in a log
    flood       100,000 perceptions a second, while people talk with the agent
    intents     intents by examples, and alert lines of logs, beside TF-IDF with logistic regression
    examined    memory of `spar cycles perceive` under an endless input, a command of its own
    throughput  how many raw lines a second the whole pipeline takes
"""
