"""The event bus: events reach signals, handlers and streams.

bus            publishes events in order and keeps the list of receivers
subscriptions  delivers events to one receiver: a plain handler, an async handler with a queue, a stream with a buffer
"""
