"""Supervision of sensors, of each and of all together.

placed             runs the sensors of a place on one of the nodes that are there
sensor_group       runs all sensors: opens, polls and closes them, and returns the waiting buffers
sensor_supervisor  runs one sensor: schedule, timeout, back-off, quarantine
sensor_task        the task of one sensor, which makes its calls one at a time, each with a timeout
unconfirmed        the changes of durable state that wait for a cycle to take the perceptions before them; saves them
buffer             the perceptions of one sensor that no cycle has taken yet, and the order in which all are taken
missed             counts missed triggers by reason
"""
