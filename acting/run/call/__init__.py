"""One call: what a plan says of it, its state in its batch, and the checks of its result.

The steps of a call are decode, prepare, hold, attempt, normalize, apply and record. Those that are not here are in the
folder above: `holds`, `attempt`, `results` (apply) and `batch` (record).

prepare     decodes items of a plan as calls; pure
call_state  the state of one call in its batch (`Step`): its parameters, the beginning of an attempt, its result
normalize   checks a tool's value: whether it can be stored, is as promised, and is as the call expects
"""
