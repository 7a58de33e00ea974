"""The one exception for mistakes that a user can correct."""


class UsageError(Exception):
    """A user's mistake in one line: what was asked, what was found, what to do.

    The command line prints the text without a traceback and exits with 1.
    """
