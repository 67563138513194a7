"""The supervision of sensors.

sensor_supervisor  runs one sensor: schedule, timeout, back-off, quarantine
sensor_task        calls one sensor, one call at a time, in one task
buffer             the perceptions of one sensor that no cycle has taken yet
missed             counts missed triggers by reason
sensor_rows        the durable rows of one sensor
"""
