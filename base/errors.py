"""The one exception for what a user can mend."""


class UsageError(Exception):
    """A user's mistake, told in one line: what was asked, what was found, what to do.

    The command line prints the text without a traceback and exits with 1.
    """
