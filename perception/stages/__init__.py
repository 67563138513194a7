"""Stages of the pipeline, in their order; pure.

templates/ replaces the log lines of one template by one perception
anomaly/   reports numbers that are far from the usual ones, once an episode
dedup      counts repeated perceptions instead of passing them on
classify   sets the kind
intent     sets intent, confidence and subject
phrases    tables of the phrases by which the built-in intents are recognised
urgency    rates severity, deadline, novelty and age
priority   sets the priority 0..1 and its reasons
fuse       merges perceptions of one subject
severity   estimates how much a perception matters, before all stages
states     tells begins from ends, and which thing a perception is a state of
wording    finds the words that name a thing, and how similar two texts are
"""
