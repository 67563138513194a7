"""Event bus: delivers events to signals, handlers and streams.

bus            publishes events in order
streams        delivers events to a stream with a buffer
run_log        keeps the events of each run as a stream that can be read again, from any number
subscriptions  delivers events to one handler, a plain one or an async one with a queue, and to other receivers of
               signals; keeps the receivers of each class of events and finds those of an event
"""
