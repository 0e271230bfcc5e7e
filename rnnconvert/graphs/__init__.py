"""The graphs that files state: operators, the values between them, and what these do to the elements on their way.

A room builds a `Graph` and gives it its framework's `Dialect`; `calls` returns what each recurrent layer of it receives.
"""
