"""The commands that show stored records, whether the service runs or not.

perceive     shows the result of the sense pipeline for lines
experiences  shows, exports, imports and forgets experiences
replay       decides recorded cycles again, and says what differs
backtest     counts what another configuration would have decided otherwise
"""
