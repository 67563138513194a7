"""The stages of the pipeline, in their order; pure.

dedup     counts repeated perceptions instead of passing them on
classify  sets the kind
intent    sets intent, confidence and subject
priority  sets the priority 0..1 and its reasons
fuse      merges perceptions of one subject
wording   finds the words that name a thing, and how much two texts are alike
"""
