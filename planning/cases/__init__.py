"""Case-based reasoning: the results of remembered calls in a situation, as evidence for the next call.

recalled    asks the memory, with bounds on number and time
situations  the situation of a decision, and the comparison of two situations; pure
evidence    lets remembered calls vote on the tool to call; pure
failures    finds the failure that a call would repeat, and a value that worked instead; pure
"""
