"""Operations of those who debug a running service.

breakpoints   breakpoints: add, list, remove
stops         the sessions that stand: list, attach, change, go, detach
"""
