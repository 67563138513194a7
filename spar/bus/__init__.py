"""Event bus: delivers events to signals, handlers and streams.

bus            publishes events in order
streams        delivers events to a stream with a buffer
subscriptions  delivers events to one handler, a plain one or an async one with a queue, and to other receivers of
               signals; keeps the receivers of each class of events and finds those of an event
"""
