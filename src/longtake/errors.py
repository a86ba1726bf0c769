"""The one error that users meet: bad input, told in a sentence that says what to do."""


class LongtakeError(Exception):
    """Input or a setting that cannot be used. The message is one sentence for the user.

    The command line prints it and ends with exit code 2; a server answers it with a 4xx.
    """
