"""State of an agent that outlives its process.

agent_state        loads and saves statistics and event numbers; hands experiences and cycles on to the memory
abilities          keeps what the agent knows of its tools within bounds, and the rows that say so
background_writer  stores experiences and cycles without a journal, beside the loop
"""
