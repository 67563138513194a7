"""Supervision of sensors, of each and of all together.

placed             runs the sensors of a place on one of the nodes that are there
sensor_group       runs all sensors: opens, polls and closes them, and returns the waiting buffers
sensor_supervisor  runs one sensor: schedule, timeout, back-off, quarantine
sensor_calls       calls the methods of one sensor, each with a timeout
sensor_task        the task of one sensor, which makes its calls one at a time
unconfirmed        the changes of durable state that wait for a cycle to take the perceptions before them; saves them
buffer             the perceptions of one sensor that no cycle has taken yet
missed             counts missed triggers by reason
sharing            the order in which the perceptions of all sensors are taken
"""
