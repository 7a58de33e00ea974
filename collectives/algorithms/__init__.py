"""The algorithms by which ranks train one network: synchronous SGD, and what stands beside it.

registry.py    the algorithms by name, their options, and which backends carry which
<name>.py      one algorithm: its options, and its update rules on flat float32 buffers, with their source

A rule knows neither framework nor transport: over which collective or servers its buffers travel is the backend's
business.
"""
