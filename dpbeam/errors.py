"""Errors that a user of dpbeam can mend."""


class InputError(ValueError):
    """Wrong usage or bad input; the message is one line that names the flag, file, column or value.

    The command line prints the message alone and exits with status 2. The message never contains
    values of the private data: it names files, columns, line numbers and types only.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(str(message).split()))
