"""Gradients in fewer bytes: compressors of flat float32 buckets, and the exchange of what they make of them.

options.py       the user's options, and the compressor that they name
compressor.py    the contract of a compressor and of what carries its messages, and error feedback
collective.py    a collective whose averages are compressed
trainer.py       a trainer whose gradients are
halves.py  topk.py  ...   the compressors

Vocabulary: a *bucket* is a flat array that holds the same gradients in every step; a *message* is the bytes that one
rank makes of its bucket. What a message leaves out is the *residual*, which is added to the next step's gradients
(error feedback).
"""
