"""Event bus: delivers events to signals, handlers and streams.

bus            publishes events in order and keeps the list of receivers
receivers      holds the receivers of one class of events, and finds the receivers of an event
streams        delivers events to a stream with a buffer
subscriptions  delivers events to one handler: a plain one, or an async one with a queue
"""
