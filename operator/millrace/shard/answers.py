"""Reading the endpoint's answers: bytes in, one `Answer` out, and no socket.

An answer counts only when it is complete. Whatever else comes (something that is no HTTP, an answer that
breaks off, one without end) is a `BadAnswer`, with which a connection ends. After an answer `reusable` says
whether the connection may carry another request: bytes that nobody asked for must never pass for the answer
to the next one.
"""

from __future__ import annotations

import httptools

MAX_SAID = 512
"""Bytes of a refusal's body that are kept for its reason."""

MAX_HEAD = 64 * 1024
"""Bytes that may come before the headers are complete, interim answers included."""

MAX_BODY = 1024 * 1024
"""Bytes that are read of one answer; of a longer one only the status counts, and the connection is closed."""


class BadAnswer(Exception):  # noqa: N818 - the name is what came
    """What the endpoint sent is no answer."""


class Answer:
    """What the endpoint said, or why it said nothing. Immutable: successes are shared."""

    __slots__ = ("error", "retry_after", "said", "status")

    def __init__(
        self, status: int, said: bytes = b"", retry_after: str | None = None, error: str = ""
    ) -> None:
        self.status = status
        """0 if there was no answer."""
        self.said = said
        """The beginning of a refusal's body."""
        self.retry_after = retry_after
        """The header of that name, as it came."""
        self.error = error
        """Why there was no answer."""

    def __repr__(self) -> str:
        return f"Answer({self.status}{f': {self.error}' if self.error else ''})"


_TAKEN = {status: Answer(status) for status in range(200, 300)}


class AnswerReader:
    """Reads the answers of one connection, one after the other."""

    __slots__ = (
        "_begun", "_body", "_complete", "_feed", "_framed", "_head_complete", "_parser", "_received",
        "_retry_after", "_said", "_status", "reusable",
    )  # fmt: skip

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self.reusable = True
        """After an answer: whether the connection may be used again."""
        self._begun = 0
        self._complete = False
        self._received = 0
        self._status = 0
        self._said: list[bytes] = []
        self._retry_after: str | None = None
        self._framed = self._head_complete = False
        self._body = 0

    def feed(self, data: bytes) -> Answer | None:
        """The answer, if these bytes complete it. Raises BadAnswer."""
        self._received += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade:
            raise BadAnswer("the endpoint switched to another protocol") from None
        except httptools.HttpParserError as error:
            if not self._complete:
                raise BadAnswer(f"the endpoint answered something that is no HTTP: {error}") from None
            self.reusable = False
        if self._complete:
            return self._taken()
        if self._received > MAX_HEAD:
            return self._oversize()
        return None

    def feed_end(self) -> Answer | None:
        """The answer, if it is one that ends with the connection. Raises BadAnswer if it broke off."""
        self.reusable = False
        if self._head_complete and not self._framed:
            return self._taken()
        if self._received:
            raise BadAnswer("the endpoint closed the connection in the middle of its answer")
        return None

    def _taken(self) -> Answer:
        """The complete answer; then the reader is as new."""
        status = self._status
        if self._begun > 1:
            self.reusable = False
        answer = _TAKEN.get(status)
        if answer is None:
            answer = Answer(status, b"".join(self._said), self._retry_after)
        self._begun = self._received = 0
        self._complete = False
        self._clear()
        return answer

    def _oversize(self) -> Answer | None:
        if not self._head_complete:
            raise BadAnswer(f"the head of the endpoint's answer has more than {MAX_HEAD // 1024} KiB")
        if self._body <= MAX_BODY:
            return None
        self.reusable = False
        return self._taken()

    def _clear(self) -> None:
        self._said.clear()
        self._retry_after = None
        self._framed = self._head_complete = False
        self._body = 0

    # What follows is called by the parser.

    def on_message_begin(self) -> None:
        """Count: a second one before the first was taken was not asked for."""
        self._begun += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pick out the few that matter, by their length first: this runs several times an answer."""
        length = len(name)
        if length == 11:
            if name.lower() == b"retry-after" and not self._complete:
                self._retry_after = value.strip().decode("latin-1")
        elif (length == 14 and name.lower() == b"content-length") or (
            length == 17 and name.lower() == b"transfer-encoding"
        ):
            self._framed = True

    def on_headers_complete(self) -> None:
        """Remember the status of the first answer that is final."""
        if not self._complete:
            self._status = self._parser.get_status_code()
            self._head_complete = self._status >= 200

    def on_body(self, body: bytes) -> None:
        """Keep the beginning, in case it explains a refusal."""
        if self._body < MAX_SAID and not self._complete:
            self._said.append(body[: MAX_SAID - self._body])
        self._body += len(body)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it is an interim one (1xx) and the true one is still to come."""
        if self._complete:
            return
        if self._status < 200:
            self._clear()
            self._begun -= 1
        else:
            self._complete = True
            self.reusable = self._parser.should_keep_alive()
