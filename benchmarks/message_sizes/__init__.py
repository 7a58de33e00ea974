"""The message-size benchmark: allreduce of the ring and of its peers, each in an environment of its own."""
