"""Learning from examples: which intents texts have, and of which kinds lines of logs are.

teachable   the part of a sense module that its owner teaches
teaching    what an agent has learnt, and what its owner teaches it
learner     trains in a thread, and knows examples by heart at once
taught      keeps the examples that people teach
examples    reads the examples of the configuration and of its files
classifier  reads texts: a label and how sure it is, or none of those learnt
calibration says how probable it is that a reading is right
vectors     softmax regression over vectors of texts, with the extra `vectors`
linear      softmax regression in plain Python
features    words and pieces of words
slots       hosts, services, files, durations and numbers in a text
"""
