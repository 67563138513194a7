"""Values of perception, as others read them: incidents, and examined perceptions.

incidents  incidents as they are kept: one trouble, what belongs to it, how it went
examined   perceptions that were sent through a pipeline for a look
"""
