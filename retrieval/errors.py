"""The one exception of this room."""


class InputError(ValueError):
    """A user's mistake, told in one sentence that names the file, line, field or argument and what to do.

    The command line prints the sentence alone and exits with code 2; a library user catches it like any ValueError.
    """
