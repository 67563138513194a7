"""The supervision of sensors.

sensor_supervisor  runs one sensor: schedule, timeout, back-off, quarantine
sensor_calls       calls the methods of one sensor, each within its time
sensor_task        the task of one sensor, in which its calls are made one at a time
sensor_state       loads and saves the cursor of one sensor, and what it missed
buffer             the perceptions of one sensor that no cycle has taken yet
missed             counts missed triggers by reason
sensor_rows        the durable rows of one sensor
sharing            the order in which the perceptions of all sensors are taken
"""
