"""Operations of those who debug a running service.

breakpoints     breakpoints: add, list, remove
configurations  the configurations that past cycles were decided by
preview         the next request of a session to a model
stops           the sessions that stand: list, attach, change, go, detach
"""
