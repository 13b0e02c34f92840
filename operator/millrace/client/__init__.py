"""What applications import: `Connection`, `Producer` and `Consumer` of composite topics, and their errors.

They follow the descriptor in Pulsar and need no Kubernetes access. What decides lives in `millrace.core`;
what is here does I/O in an event loop, and nothing else.
"""

from millrace.client.connection import Connection
from millrace.client.consumer import Consumer, ConsumerClosed, ConsumerFailed
from millrace.client.errors import (
    ClientError,
    EndOfPartition,
    InvalidGroupId,
    InvalidMessage,
    NoSuchPartition,
    PayloadTooLarge,
    ProducerClosed,
    ProducerFailed,
    QueueFull,
    TopicNotFound,
    TopicNotWritable,
)
from millrace.client.partitions import Message
from millrace.client.producer import Producer
from millrace.core.positions import Position
from millrace.core.reading import Stream

__all__ = [
    "ClientError",
    "Connection",
    "Consumer",
    "ConsumerClosed",
    "ConsumerFailed",
    "EndOfPartition",
    "InvalidGroupId",
    "InvalidMessage",
    "Message",
    "NoSuchPartition",
    "PayloadTooLarge",
    "Position",
    "Producer",
    "ProducerClosed",
    "ProducerFailed",
    "QueueFull",
    "Stream",
    "TopicNotFound",
    "TopicNotWritable",
]
