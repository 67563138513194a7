"""Messages of runs before their ends, attached.

interim  sends blocks of answers, lines about calls, and thoughts of the model
"""
