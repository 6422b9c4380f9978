"""The verbs of `stower`, one module each: its arguments, its help and its output.

cli.main imports a module only when its verb runs. Must not be imported by other packages.
"""
