"""Alerts out of the process: what is wrong becomes a notice, kept until somebody was told.

alerting   opens alerts for sensors and channels in quarantine, and for approvals that wait too long
notices    makes notices of alerts, once for each episode, and keeps them until they are sent
delivery   sends the notices of one notifier, one after another, and again where that fails
"""
