"""Alerts for people outside of the process: an alert becomes a notice, which is stored until it was sent.

notices   makes notices of alerts, once for each episode, and stores them until they are sent
delivery  the outbox of one notifier, and its quiet hours
"""
