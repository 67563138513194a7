"""Learning from examples: the intents of texts, and the kinds of log lines.

teaching     the learnt and the taught examples of an agent; trains in a thread
learner      the learnt labels: equal texts are recognised at once; hosts, files, durations and numbers in a text
taught       stores the examples that people teach
examples     reads the examples of the configuration and of its files
classifier   reads texts: a label with the probability that it is right, or no learnt label
vectors      softmax regression over vectors of texts, with the extra `vectors`
linear       softmax regression in plain Python
features     words and pieces of words
"""
