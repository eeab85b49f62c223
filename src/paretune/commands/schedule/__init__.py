"""The command `schedule`: entries for the schedulers that call `paretune study --once` every few minutes.

- `request.ScheduleRequest`: the parameters; `command.run`: the entry, from one of the files in `templates/`.
"""
