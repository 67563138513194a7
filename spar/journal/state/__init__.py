"""State of an agent that outlives its process.

agent_state        the state of an agent without a memory
stored_state       loads and saves statistics and event numbers; gives experiences and cycles to the memory
background_writer  stores experiences and cycles without a journal, in a background task
"""
