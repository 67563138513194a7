"""The memory's face, kind by kind: what may be asked of a memory that is open.

open_memory  the file and the journal of a memory while it is open
experiences  experiences: stored, recalled, forgotten, exchanged
cycles       the tape of cycles, and what recovery has left to people
state        small state: values by key, small rows, versioned records
transcripts  the transcripts: read, added to, forgotten
sessions     the sessions: found, listed, set, forgotten
"""
