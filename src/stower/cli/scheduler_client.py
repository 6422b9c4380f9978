"""Sends HTTP requests to a scheduler on this machine, with its bearer token and no proxy."""

import urllib.request
from http.client import HTTPResponse
from pathlib import Path

from stower.cli.output import bad_input
from stower.pki.trust import UntrustedError, check_file


def token_for(port: int | None, token_file: Path | None) -> str:
    """The token of the file, "" where no scheduler is named. Ends the program where the options
    make no sense."""
    if (port is None) != (token_file is None):
        raise bad_input("--port and --token-file: want both or none")
    if token_file is None:
        return ""
    return read_token(token_file)


def read_token(path: Path) -> str:
    """The token of a file. Ends the program where it has none."""
    try:
        check_file(path)
        token = path.read_text().strip()
    except UntrustedError as error:
        raise bad_input(f"--token-file {path}: {error}") from None
    except OSError as error:
        raise bad_input(f"--token-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if len(token.split()) != 1:
        raise bad_input(f"--token-file {path}: want one line with a token")
    return token


def open_url(url: str, token: str, seconds: float) -> HTTPResponse:
    """The answer, to be closed; so long is waited for each part of it. Raises what urllib does."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answer: HTTPResponse = opener.open(request, timeout=seconds)
    return answer
