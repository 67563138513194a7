"""The stages of the pipeline, in their order; pure.

templates/ puts one log line in the place of all of its template
anomaly/   tells numbers that are rare at this time of the day, once
dedup     counts repeated perceptions instead of passing them on
classify  sets the kind
intent    sets intent, confidence and subject
phrases   knows the turns of phrase of the built-in intents
urgency   says what severity, deadline, novelty and age are worth
priority  sets the priority 0..1 and its reasons
fuse      merges perceptions of one subject
severity  guesses how much a perception matters, before all stages
wording   finds the words that name a thing, and how much two texts are alike
"""
