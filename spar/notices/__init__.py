"""Alerts for people outside of the process: an alert becomes a notice, which is stored until it was sent.

alerting   opens alerts for sensors and channels in quarantine, and for approvals that wait too long
notices    makes notices of alerts, once for each episode, and stores them until they are sent
delivery   the outbox of one notifier, and its quiet hours
"""
