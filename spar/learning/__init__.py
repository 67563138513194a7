"""Learning of an agent, attached: the abilities of its tools, their rows, and feedback on what has ended.

learning  applies reflections and feedback, counts them, and keeps the abilities in rows of the memory
"""
