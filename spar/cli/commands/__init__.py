"""The commands of `spar`, a folder for each subject.

conversation/  submits work to the service, follows runs, and shows sessions
operate/       runs and controls the service, and shows its state
records/       shows stored records: cycles, experiences, incidents
setup/         writes, checks and shows the configuration and the parts that it names
"""
